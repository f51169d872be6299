"""The models that the training program knows, in Flax Linen: images in, logits out."""
