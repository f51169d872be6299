"""Where the time goes in which XLA compiles training steps for GPUs."""
