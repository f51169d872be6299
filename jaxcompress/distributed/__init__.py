"""Everything that knows JAX's devices: meshes, placement of state, and the training step."""
