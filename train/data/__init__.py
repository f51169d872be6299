"""The data sets of the training program, and their batches."""
