"""The data sets by name, and what each of them is made of."""

from collections.abc import Callable

from train.data.cifar10 import cifar10
from train.data.dataset import Dataset
from train.data.digits import digits
from train.data.mnist import mnist
from train.data.tiny_shakespeare import tiny_shakespeare
from train.errors import unknown

# (data_dir, context) -> the data set.
Load = Callable[[str | None, int], Dataset]


def load_dataset(name: str, data_dir: str | None = None, context: int = 64) -> Dataset:
    """The data set called `name`, read into memory: seconds for MNIST and CIFAR-10.

    Args:
      name: one of `DATASETS`.
      data_dir: where prepared data sets are; None for ``$TFDS_DATA_DIR``, and ``~/tensorflow_datasets`` where that is
        not set. "digits" needs none.
      context: characters in an example of text, at least 1; images have none.

    Raises:
      ValueError: no data set has this name, or its text is too short for `context`.
      DataError: the data set is not there or not complete; the message says how to prepare it.
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name](data_dir, context)


IMAGES: dict[str, Load] = {
    "digits": lambda data_dir, context: digits(),
    "mnist": lambda data_dir, context: mnist(data_dir),
    "cifar10": lambda data_dir, context: cifar10(data_dir),
}
TEXTS: dict[str, Load] = {
    "tiny_shakespeare": tiny_shakespeare,
}
DATASETS = IMAGES | TEXTS
