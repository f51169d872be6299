"""Wall-clock time of real training over a slow network, until a validation loss is reached."""
