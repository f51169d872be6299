"""The training program: ``python -m train CONFIG.yaml [--field value …]``.

It trains an image classifier or a language model on the devices of one machine or many, with gradients averaged by
`jaxcompress`, and uses that library only through its door. Reading order: `config` (what can be set), `loop` (what
happens).
"""
