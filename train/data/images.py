"""A data set of labelled images, and how its pixels become the inputs of a model."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int32, UInt8

from train.data.dataset import Batch

# (images, noise) -> images.
Augment = Callable[[np.ndarray, np.ndarray], np.ndarray]

_PADDING = 4  # black pixels around an image that is cropped


class Split(NamedTuple):
    """Images and their classes, in a fixed order."""

    images: UInt8[np.ndarray, "n h w c"]
    labels: Int32[np.ndarray, "n"]


class Images(NamedTuple):
    """A `Dataset` with float32 inputs (n, height, width, channels) and int32 labels (n,)."""

    name: str
    train: Split
    test: Split
    num_classes: int
    mean: tuple[float, ...]  # of each channel of the training images, in the units of the pixels
    std: tuple[float, ...]  # likewise
    augment: Augment | None = None  # applied to training images only, before normalization

    @property
    def train_size(self) -> int:
        """The number of training images."""
        return len(self.train.labels)

    @property
    def test_size(self) -> int:
        """The number of test images."""
        return len(self.test.labels)

    def order(self, generator: np.random.Generator) -> Int[np.ndarray, "train_size"]:
        """A random permutation of the training images."""
        return generator.permutation(self.train_size)

    def train_batch(self, examples: Int[np.ndarray, "n"], noise: Float[np.ndarray, "n 3"]) -> Batch:
        """Training images by their index, augmented and normalized."""
        images = self.train.images[examples]
        if self.augment is not None:
            images = self.augment(images, noise)
        return {"inputs": self.normalized(images), "labels": self.train.labels[examples]}

    def test_batch(self, positions: Int[np.ndarray, "n"]) -> Batch:
        """Normalized test images; positions past the end repeat the last image with weight 0."""
        examples = np.minimum(positions, self.test_size - 1)
        return {
            "inputs": self.normalized(self.test.images[examples]),
            "labels": self.test.labels[examples],
            "weights": (positions < self.test_size).astype(np.float32),
        }

    def normalized(self, images: UInt8[np.ndarray, "n h w c"]) -> Float[np.ndarray, "n h w c"]:
        """(images - mean) / std of each channel, in float32."""
        # Expanded to a whole image first: broadcasting along three channels is several times
        # slower.
        mean = np.broadcast_to(np.asarray(self.mean, np.float32), images.shape[1:]).copy()
        std = np.broadcast_to(np.asarray(self.std, np.float32), images.shape[1:]).copy()
        result = images - mean
        result /= std
        return result


def with_validation(images: Images) -> Images:
    """The same data set, evaluated on the last tenth of its training images.

    Those are not trained on, and the test images are left out.
    """
    kept = images.train_size - images.train_size // 10
    train, validation = (
        Split(images.train.images[part], images.train.labels[part])
        for part in (slice(kept), slice(kept, None))
    )
    return images._replace(train=train, test=validation)


def crop_and_flip(
    images: UInt8[np.ndarray, "n h w c"], noise: Float[np.ndarray, "n 3"]
) -> UInt8[np.ndarray, "n h w c"]:
    """Shifts each image by up to four pixels in both directions and mirrors half of them.

    Args:
      images: the images.
      noise: three numbers in [0, 1) for each image: the offset of the crop from the top and from
        the left, and whether to mirror.

    Returns:
      Images of the same shape; pixels from outside the original are 0.
    """
    n, height, width, channels = images.shape
    padded = np.zeros((n, height + 2 * _PADDING, width + 2 * _PADDING, channels), images.dtype)
    padded[:, _PADDING:-_PADDING, _PADDING:-_PADDING] = images
    top, left = (noise[:, :2] * (2 * _PADDING + 1)).astype(int).T
    mirrored = noise[:, 2] >= 0.5
    result = np.empty_like(images)
    # One slice per image copies whole rows of pixels. It is several times faster than one gather.
    for i in range(n):
        crop = padded[i, top[i] : top[i] + height, left[i] : left[i] + width]
        result[i] = crop[:, ::-1] if mirrored[i] else crop
    return result
