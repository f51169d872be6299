"""Bytes and scores of levels that adapt, beside their fixed levels."""
