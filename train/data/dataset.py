"""The interface of a data set: labelled examples in memory, which it converts to model inputs.

The sets are small (CIFAR-10 is 180 MB), so each is read once as a whole, and a batch is a list of
indices. A data set knows no batches, processes or seeds: random numbers are arguments.
"""

from typing import Protocol

import numpy as np
from jaxtyping import Float, Int

from train.errors import InputError

# "inputs" and "labels", (n, …) each, and for testing "weights", in the shape of the labels.
Batch = dict[str, np.ndarray]

# How many random numbers, uniform in [0, 1), augment one training example. So an augmentation is a
# pure function, and the caller decides what the noise depends on.
NOISE = 3


class DataError(InputError):
    """A data set is missing or incomplete; the message says how to prepare it."""


class Dataset(Protocol):
    """Labelled examples for training and for testing."""

    @property
    def name(self) -> str:
        """Its name in the registry."""
        ...

    @property
    def num_classes(self) -> int:
        """Number of classes; labels are integers below it."""
        ...

    @property
    def train_size(self) -> int:
        """Number of examples in an epoch."""
        ...

    @property
    def test_size(self) -> int:
        """Number of test examples."""
        ...

    def order(self, generator: np.random.Generator) -> Int[np.ndarray, "train_size"]:
        """The training examples of one epoch, shuffled, in numbers that `train_batch` takes."""
        ...

    def train_batch(self, examples: Int[np.ndarray, "n"], noise: Float[np.ndarray, "n 3"]) -> Batch:
        """Inputs and labels of these training examples."""
        ...

    def test_batch(self, positions: Int[np.ndarray, "n"]) -> Batch:
        """Inputs, labels and weights of test examples; positions past the end have weight 0."""
        ...
