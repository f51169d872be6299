"""The data sets by name, and where each of them comes from.

References:
  LeCun et al., `Gradient-based learning applied to document recognition
  <http://yann.lecun.com/exdb/publis/pdf/lecun-98.pdf>`_, 1998, for MNIST

  Krizhevsky, `Learning Multiple Layers of Features from Tiny Images
  <https://www.cs.toronto.edu/~kriz/learning-features-2009-TR.pdf>`_, 2009, for CIFAR-10

  Karpathy, `The Unreasonable Effectiveness of Recurrent Neural Networks
  <https://karpathy.github.io/2015/05/21/rnn-effectiveness/>`_, 2015, for Tiny Shakespeare
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from train.data.dataset import Dataset
from train.data.images import Images, Split, crop_and_flip, with_validation
from train.data.text import Text, make_text
from train.data.tfds_reader import read_images, read_text
from train.errors import unknown

# What a model is evaluated on. Settings are chosen by validation; test scores are read once.
Evaluated = Literal["test", "validation"]
# (data_dir, context, evaluated) -> the data set.
Load = Callable[[str | None, int, Evaluated], Dataset]


def load_dataset(
    name: str, data_dir: str | None = None, context: int = 64, evaluated: Evaluated = "test"
) -> Dataset:
    """Reads the data set called `name` into memory, which takes seconds.

    Args:
      name: one of `DATASETS`.
      data_dir: folder of the prepared data sets; None means ``$TFDS_DATA_DIR``, or
        ``~/tensorflow_datasets`` if that is not set. "digits" needs none.
      context: characters in an example of text, at least 1; ignored for images.
      evaluated: "validation" puts the validation examples in the place of the test examples. Of
        images these are the last tenth of the training examples, which are then not trained on.
        Text has a validation split of its own.

    Raises:
      ValueError: no data set has this name, or its text is too short for `context`.
      DataError: the data set is missing or incomplete; the message says how to prepare it.
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name](data_dir, context, evaluated)


def digits() -> Images:
    """1,797 grey 8x8 images with values 0 to 16, from scikit-learn itself; needs no download.

    The split into 1,437 and 360 is stratified by class and always the same.
    """
    # Imported here, since it takes a second and no other data set needs it.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype(np.uint8)
    labels = labels.astype(np.int32)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=360, stratify=labels, random_state=0
    )
    return Images(
        name="digits",
        train=Split(images[train], labels[train]),
        test=Split(images[test], labels[test]),
        num_classes=10,
        mean=(4.89,),
        std=(6.02,),
    )


def mnist(data_dir: str | None = None) -> Images:
    """MNIST: 70,000 grey 28x28 images of handwritten digits."""
    return Images(
        name="mnist",
        train=read_images("mnist", "train", data_dir),
        test=read_images("mnist", "test", data_dir),
        num_classes=10,
        mean=(33.32,),
        std=(78.57,),
    )


def cifar10(data_dir: str | None = None) -> Images:
    """CIFAR-10: 60,000 colour 32x32 images of animals and vehicles; augmented in training."""
    return Images(
        name="cifar10",
        train=read_images("cifar10", "train", data_dir),
        test=read_images("cifar10", "test", data_dir),
        num_classes=10,
        mean=(125.31, 122.95, 113.87),
        std=(62.99, 62.09, 66.70),
        augment=crop_and_flip,
    )


def tiny_shakespeare(
    data_dir: str | None = None, context: int = 64, evaluated: Evaluated = "test"
) -> Text:
    """Tiny Shakespeare: 1.1 million characters of plays, 65 different ones.

    The first 90 % are the training text, the next 5 % the validation text, the last 5 % the test
    text.
    """
    train, test = (read_text("tiny_shakespeare", split, data_dir) for split in ("train", evaluated))
    return make_text("tiny_shakespeare", train, test, context)


def _of_images(load: Callable[[str | None], Images]) -> Load:
    def load_part(data_dir: str | None, context: int, evaluated: Evaluated) -> Dataset:
        images = load(data_dir)
        return with_validation(images) if evaluated == "validation" else images

    return load_part


IMAGES: dict[str, Load] = {
    "digits": _of_images(lambda data_dir: digits()),
    "mnist": _of_images(mnist),
    "cifar10": _of_images(cifar10),
}
TEXTS: dict[str, Load] = {
    "tiny_shakespeare": tiny_shakespeare,
}
DATASETS = IMAGES | TEXTS
