"""Residual networks: one structure, two kinds of block, two stems.

ResNet-18 and ResNet-50 have the ImageNet stem (7x7 stride 2, max-pooling) or the CIFAR stem (3x3,
stride 1). ResNet-8 and ResNet-20 are the thin networks for CIFAR of He et al. §4.2, with three
stages of 16, 32 and 64 features and depth 6n + 2.

Choices where publications differ:

- The stride of a bottleneck is in its 3x3 convolution.
- Where the shape changes, the shortcut is a 1x1 convolution with BatchNorm, in the thin networks
  too (272,474 parameters for ResNet-20).
- Every BatchNorm scale starts at one: a branch that starts at zero would have no gradient to
  compress in its first step.

BatchNorm normalizes with the statistics of the local batch and does not communicate. Its running
averages are in the `batch_stats` collection.

Reference: He et al., `Deep Residual Learning for Image Recognition
<https://arxiv.org/abs/1512.03385>`_, 2015
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


class ResNet(nn.Module):
    """A stem, stages of residual blocks, and one dense layer.

    Each stage after the first halves the image and doubles the features.

    Args:
      stem: `CifarStem` or `ImageNetStem`.
      block: `BasicBlock` or `Bottleneck`.
      stage_sizes: blocks in each stage.
      features: features of the stem and of the first stage.
      num_classes: number of logits.
      dtype: dtype of the computation; parameters and running averages are float32.
    """

    stem: Callable[..., nn.Module]
    block: Callable[..., nn.Module]
    stage_sizes: tuple[int, ...]
    features: int
    num_classes: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "n h w c"], train: bool) -> Float[Array, "n classes"]:
        """The logits of a batch of images."""
        x = self.stem(self.features)(images.astype(self.dtype), train)
        for stage, blocks in enumerate(self.stage_sizes):
            for index in range(blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                x = self.block(self.features * 2**stage, stride)(x, train)
        return nn.Dense(self.num_classes, dtype=self.dtype)(x.mean(axis=(1, 2)))


class CifarStem(nn.Module):
    """One 3x3 convolution that keeps the size of the image."""

    features: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """The first features of a batch of images."""
        return nn.relu(_conv(images, self.features, 3, train))


class ImageNetStem(nn.Module):
    """One 7x7 convolution and max-pooling, which make the image four times smaller."""

    features: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """The first features of a batch of images."""
        x = nn.relu(_conv(images, self.features, 7, train, stride=2))
        return nn.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))  # pyright: ignore[reportArgumentType]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """The features of the next block."""
        y = nn.relu(_conv(x, self.features, 3, train, self.stride))
        y = _conv(y, self.features, 3, train)
        return nn.relu(_shortcut(x, y.shape, self.stride, train) + y)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut, with 4 times `features` at the end."""

    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """The features of the next block."""
        y = nn.relu(_conv(x, self.features, 1, train))
        y = nn.relu(_conv(y, self.features, 3, train, self.stride))
        y = _conv(y, 4 * self.features, 1, train)
        return nn.relu(_shortcut(x, y.shape, self.stride, train) + y)


def _shortcut(x: jax.Array, shape: tuple[int, ...], stride: int, train: bool) -> jax.Array:
    """`x` if it has this shape, otherwise its projection to it."""
    if x.shape == shape:
        return x
    return _conv(x, shape[-1], 1, train, stride)


def _conv(x: jax.Array, features: int, size: int, train: bool, stride: int = 1) -> jax.Array:
    """A square convolution, and BatchNorm with batch statistics in training, else running ones."""
    init = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
    # Equal padding on both sides, unlike "SAME" at stride 2. No bias: BatchNorm would subtract it.
    conv = nn.Conv(
        features,
        (size, size),
        stride,
        padding=size // 2,
        use_bias=False,
        kernel_init=init,
        dtype=x.dtype,
    )
    return nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5, dtype=x.dtype)(
        conv(x)
    )
