"""Seconds to a validation loss with periods, over a shaped network."""
