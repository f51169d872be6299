"""A small model whose targets are its inputs, for tests of steps."""

import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 8), np.float32)
PARAMS = {
    "up": RNG.standard_normal((8, 32), np.float32) / 4,
    "down": RNG.standard_normal((32, 8), np.float32) / 8,
    "bias": np.zeros(8, np.float32),
}
SPECS = {"up": P(None, "fsdp"), "down": P("fsdp", None), "bias": P()}


def predict(params, x):
    return jnp.tanh(x @ params["up"]) @ params["down"] + params["bias"]
