"""Functions from the step count to an index or a number."""
