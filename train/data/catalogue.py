"""The data sets by name."""

from collections.abc import Callable

from train.data.cifar10 import cifar10
from train.data.dataset import Dataset
from train.data.digits import digits
from train.data.mnist import mnist
from train.errors import unknown


def load_dataset(name: str, data_dir: str | None = None) -> Dataset:
    """The data set called `name`, read into memory: seconds for MNIST and CIFAR-10.

    Args:
      name: one of `DATASETS`.
      data_dir: where prepared data sets are; None for ``$TFDS_DATA_DIR``, and ``~/tensorflow_datasets`` where that is
        not set. "digits" needs none.

    Raises:
      ValueError: no data set has this name.
      DataError: the data set is not there or not complete; the message says how to prepare it.
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name](data_dir)


DATASETS: dict[str, Callable[[str | None], Dataset]] = {
    "digits": lambda data_dir: digits(),
    "mnist": mnist,
    "cifar10": cifar10,
}
