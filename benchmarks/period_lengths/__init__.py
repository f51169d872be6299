"""Validation loss against the length of a period, for several compressors of the drift."""
