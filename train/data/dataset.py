"""What a data set is here: two splits in memory, and how their pixels become the numbers that a model sees.

The sets are small (CIFAR-10 is 180 MB), so each is decoded once into one array: batches are then a matter of indices.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int32, UInt8

from train.errors import InputError

# (images, noise) -> images. `noise` is uniform in [0, 1) and has NOISE numbers for each image, so that an augmentation
# is a pure function: who draws the noise decides what it depends on.
NOISE = 3
Augment = Callable[[np.ndarray, np.ndarray], np.ndarray]


class DataError(InputError):
    """A data set is missing or incomplete; the message says how to prepare it."""


class Split(NamedTuple):
    """Images and their classes, in a fixed order."""

    images: UInt8[np.ndarray, "n h w c"]
    labels: Int32[np.ndarray, "n"]


class Dataset(NamedTuple):
    """A classification data set, in memory."""

    name: str
    train: Split
    test: Split
    num_classes: int
    mean: tuple[float, ...]  # of each channel of the training images, in units of their pixels
    std: tuple[float, ...]  # likewise
    augment: Augment | None = None  # applied to training images only, before they are normalised

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        height, width, channels = self.train.images.shape[1:]
        return height, width, channels

    @property
    def train_size(self) -> int:
        """How many training examples there are."""
        return len(self.train.labels)

    @property
    def test_size(self) -> int:
        """How many test examples there are."""
        return len(self.test.labels)

    def normalised(self, images: UInt8[np.ndarray, "n h w c"]) -> Float[np.ndarray, "n h w c"]:
        """(images - mean) / std of each channel, in float32."""
        # Spread over a whole image first: broadcasting along three channels is several times slower.
        mean = np.broadcast_to(np.asarray(self.mean, np.float32), images.shape[1:]).copy()
        std = np.broadcast_to(np.asarray(self.std, np.float32), images.shape[1:]).copy()
        result = images - mean
        result /= std
        return result
