"""The data sets that the training program knows, and the batches it makes of them."""
