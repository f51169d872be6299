"""The usual augmentation for CIFAR: pad by four pixels, crop at random, mirror every other image."""

import numpy as np
from jaxtyping import Float, UInt8

_PADDING = 4  # pixels, black


def crop_and_flip(
    images: UInt8[np.ndarray, "n h w c"], noise: Float[np.ndarray, "n 3"]
) -> UInt8[np.ndarray, "n h w c"]:
    """Shifts each image by up to four pixels in both directions and mirrors it with probability one half.

    Args:
      images: the images.
      noise: for each image three numbers in [0, 1): where the crop is from top and from left, and whether to mirror.

    Returns:
      Images of the same shape; pixels from outside the original are 0.
    """
    n, height, width, channels = images.shape
    padded = np.zeros((n, height + 2 * _PADDING, width + 2 * _PADDING, channels), images.dtype)
    padded[:, _PADDING:-_PADDING, _PADDING:-_PADDING] = images
    top, left = (noise[:, :2] * (2 * _PADDING + 1)).astype(int).T
    mirrored = noise[:, 2] >= 0.5
    result = np.empty_like(images)
    # One slice an image copies whole rows of pixels, and is several times faster than one gather over all of them.
    for i in range(n):
        crop = padded[i, top[i] : top[i] + height, left[i] : left[i] + width]
        result[i] = crop[:, ::-1] if mirrored[i] else crop
    return result
