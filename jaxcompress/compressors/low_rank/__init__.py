"""Compressors that send thin factors of matrices."""
