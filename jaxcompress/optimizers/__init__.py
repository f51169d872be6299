"""Optimizers that compress the momentum instead of the gradient: each is the network boundary itself."""
