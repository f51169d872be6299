"""Digits: 1,797 grey images of 8x8 pixels with values 0 to 16, out of scikit-learn itself, so without any network."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from train.data.images import Images, Split


def digits() -> Images:
    """The digits, split 1,437 to 360, with the same share of every class on both sides and always the same way."""
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype(np.uint8)
    labels = labels.astype(np.int32)
    train, test = train_test_split(np.arange(len(labels)), test_size=360, stratify=labels, random_state=0)
    return Images(
        name="digits",
        train=Split(images[train], labels[train]),
        test=Split(images[test], labels[test]),
        num_classes=10,
        mean=(4.89,),
        std=(6.02,),
    )
