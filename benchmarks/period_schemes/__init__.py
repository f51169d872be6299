"""Validation loss of streaming and gossip, beside local updates."""
