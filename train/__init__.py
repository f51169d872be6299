"""The training program: ``python -m train CONFIG.yaml [--field value …]``.

It trains an image classifier or a language model on the devices of one machine or many, and
averages gradients with `jaxcompress`, of which it uses only the public API. Start with `config`
(what can be set) and `loop` (what happens).
"""
