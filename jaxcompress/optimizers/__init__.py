"""Optimizers made for compressed gradients: the momentum stands before the network, not after it."""
