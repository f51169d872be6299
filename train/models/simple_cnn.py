"""A small convolutional network for small grey images, without BatchNorm.

It is small enough for a CPU: about 200,000 parameters on MNIST and 20,000 on 8x8 digits. Of these,
97 % and 73 % are in the first dense layer, so most of the gradient is one matrix to compress.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


class SimpleCNN(nn.Module):
    """Two 3x3 convolutions, each followed by 2x2 max-pooling, then two dense layers.

    Args:
      num_classes: number of logits.
      dtype: dtype of the computation; parameters are float32.
    """

    num_classes: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "n h w c"], train: bool) -> Float[Array, "n classes"]:
        """The logits of a batch of images."""
        del train  # training and evaluation are the same
        x = images
        for features in (16, 32):
            x = _halve(nn.relu(nn.Conv(features, (3, 3), dtype=self.dtype)(x)))
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(128, dtype=self.dtype)(x))
        return nn.Dense(self.num_classes, dtype=self.dtype)(x)


def _halve(x: jax.Array) -> jax.Array:
    """Max-pooling over 2x2."""
    n, height, width, features = x.shape
    # A reshape and a maximum: the select-and-scatter gradient of `nn.max_pool` is slow on a CPU.
    x = x[:, : height // 2 * 2, : width // 2 * 2].reshape(
        n, height // 2, 2, width // 2, 2, features
    )
    return x.max(axis=(2, 4))
