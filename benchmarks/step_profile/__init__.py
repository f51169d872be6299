"""Where dense training steps spend their time, in JAX and in PyTorch."""
