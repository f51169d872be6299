"""The models of the training program, in Flax Linen: from images or characters to logits."""
