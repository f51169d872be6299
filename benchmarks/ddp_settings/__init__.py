"""Which settings of PyTorch's DDP are the fastest."""
