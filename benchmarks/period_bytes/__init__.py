"""What the methods with periods send at a network interface."""
