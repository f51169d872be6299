"""The border with JAX's devices: meshes, placement of state, and the training step."""
