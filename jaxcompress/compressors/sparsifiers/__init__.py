"""Compressors that send few entries: the largest, or some at random."""
