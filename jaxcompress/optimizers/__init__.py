"""Optimizers made for compressed gradients: their momentum comes before the average."""
