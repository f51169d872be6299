"""Thin factors of matrices."""
