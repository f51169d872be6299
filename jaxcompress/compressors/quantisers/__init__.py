"""Compressors that send few bits for every entry."""
