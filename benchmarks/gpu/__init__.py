"""What is worth running the first time a GPU is there."""
