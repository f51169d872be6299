"""Few entries: the largest, or some at random."""
