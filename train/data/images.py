"""A data set of images and their classes, and how its pixels become the numbers that a model sees."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int32, UInt8

from train.data.dataset import Batch

# (images, noise) -> images.
Augment = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Split(NamedTuple):
    """Images and their classes, in a fixed order."""

    images: UInt8[np.ndarray, "n h w c"]
    labels: Int32[np.ndarray, "n"]


class Images(NamedTuple):
    """A `Dataset` whose inputs are float32 (n, height, width, channels), and whose labels are int32 (n,)."""

    name: str
    train: Split
    test: Split
    num_classes: int
    mean: tuple[float, ...]  # of each channel of the training images, in units of their pixels
    std: tuple[float, ...]  # likewise
    augment: Augment | None = None  # applied to training images only, before they are normalised

    @property
    def train_size(self) -> int:
        """How many training images there are."""
        return len(self.train.labels)

    @property
    def test_size(self) -> int:
        """How many test images there are."""
        return len(self.test.labels)

    def order(self, generator: np.random.Generator) -> Int[np.ndarray, "train_size"]:
        """Every training image once."""
        return generator.permutation(self.train_size)

    def train_batch(self, examples: Int[np.ndarray, "n"], noise: Float[np.ndarray, "n 3"]) -> Batch:
        """Training images by their index, augmented and normalised."""
        images = self.train.images[examples]
        if self.augment is not None:
            images = self.augment(images, noise)
        return {"inputs": self.normalised(images), "labels": self.train.labels[examples]}

    def test_batch(self, positions: Int[np.ndarray, "n"]) -> Batch:
        """Test images, normalised; past the end stand copies of the last one, which weigh nothing."""
        examples = np.minimum(positions, self.test_size - 1)
        return {
            "inputs": self.normalised(self.test.images[examples]),
            "labels": self.test.labels[examples],
            "weights": (positions < self.test_size).astype(np.float32),
        }

    def normalised(self, images: UInt8[np.ndarray, "n h w c"]) -> Float[np.ndarray, "n h w c"]:
        """(images - mean) / std of each channel, in float32."""
        # Spread over a whole image first: broadcasting along three channels is several times slower.
        mean = np.broadcast_to(np.asarray(self.mean, np.float32), images.shape[1:]).copy()
        std = np.broadcast_to(np.asarray(self.std, np.float32), images.shape[1:]).copy()
        result = images - mean
        result /= std
        return result
