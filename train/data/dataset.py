"""What a data set is here: labelled examples in memory, which it makes into the numbers that a model sees.

The sets are small (CIFAR-10 is 180 MB), so each is read once as a whole: batches are then a matter of indices. A data
set does not know batches, processes or seeds; what is random in it is given to it as numbers.
"""

from typing import Protocol

import numpy as np
from jaxtyping import Float, Int

from train.errors import InputError

# "inputs" and "labels", (n, …) each, and for testing "weights", of the shape of the labels.
Batch = dict[str, np.ndarray]

# For each training example there are so many numbers, uniform in [0, 1), to change it at random. So an augmentation is
# a pure function: who draws the noise decides what it depends on.
NOISE = 3


class DataError(InputError):
    """A data set is missing or incomplete; the message says how to prepare it."""


class Dataset(Protocol):
    """Labelled examples for training and for testing."""

    @property
    def name(self) -> str:
        """As in the catalogue."""
        ...

    @property
    def num_classes(self) -> int:
        """Labels are integers below it."""
        ...

    @property
    def train_size(self) -> int:
        """How many examples an epoch has."""
        ...

    @property
    def test_size(self) -> int:
        """How many test examples there are."""
        ...

    def order(self, generator: np.random.Generator) -> Int[np.ndarray, "train_size"]:
        """The training examples of one epoch, shuffled: what each number means is known to `train_batch` alone."""
        ...

    def train_batch(self, examples: Int[np.ndarray, "n"], noise: Float[np.ndarray, "n 3"]) -> Batch:
        """Inputs and labels of these training examples."""
        ...

    def test_batch(self, positions: Int[np.ndarray, "n"]) -> Batch:
        """Inputs, labels and weights of the test examples at these positions; what is past the end weighs 0."""
        ...
