"""The models that the training program knows, in Flax Linen: images or characters in, logits out."""
