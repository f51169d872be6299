"""Rules that choose a level of compression from what was measured in earlier steps."""
