"""Optimizers made for compressed gradients, where a compressor before an ordinary one is not enough."""
