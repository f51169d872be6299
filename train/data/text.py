"""A data set of text: windows of characters, each labelled with the character that follows.

A training epoch reads the text once, in shuffled windows that start at a random offset. Testing
reads the test text once, in order. No state passes from window to window, so a model is tested with
the context that it was trained with.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int32

from train.data.dataset import Batch, DataError
from train.errors import InputError


class Text(NamedTuple):
    """A `Dataset` with int32 inputs and labels (n, context); labels are one character later."""

    name: str
    train: Int32[np.ndarray, "n"]  # characters, as indices into the vocabulary
    test: Int32[np.ndarray, "m"]  # likewise
    vocabulary: str  # the characters of the training text, sorted
    context: int  # characters in a window

    @property
    def num_classes(self) -> int:
        """Number of different characters."""
        return len(self.vocabulary)

    @property
    def train_size(self) -> int:
        """Windows in an epoch: one fewer than fit, so that every offset is possible."""
        return len(self.train) // self.context - 1

    @property
    def test_size(self) -> int:
        """Windows that predict each test character once, except the first."""
        return -(-(len(self.test) - 1) // self.context)

    def order(self, generator: np.random.Generator) -> Int[np.ndarray, "train_size"]:
        """The starts of adjacent windows from a random offset on, shuffled."""
        offset = generator.integers(len(self.train) - self.train_size * self.context)
        return offset + self.context * generator.permutation(self.train_size)

    def train_batch(self, examples: Int[np.ndarray, "n"], noise: Float[np.ndarray, "n 3"]) -> Batch:
        """The windows of the training text that start there."""
        del noise
        characters = self.train[self._window_indices(examples)]
        return {"inputs": characters[:, :-1], "labels": characters[:, 1:]}

    def test_batch(self, positions: Int[np.ndarray, "n"]) -> Batch:
        """Adjacent windows of the test text, padded with the last character at weight 0."""
        indices = self._window_indices(positions * self.context)
        characters = self.test[np.minimum(indices, len(self.test) - 1)]
        weights = (indices[:, 1:] < len(self.test)).astype(np.float32)
        return {"inputs": characters[:, :-1], "labels": characters[:, 1:], "weights": weights}

    def _window_indices(self, starts: np.ndarray) -> np.ndarray:
        """Indices of the characters of each window and of the next one, (n, context + 1)."""
        return starts[:, None] + np.arange(self.context + 1)


def make_text(name: str, train: str, test: str, context: int) -> Text:
    """Makes a data set of two texts, with the vocabulary of the training text.

    Args:
      name: name of the data set.
      train: the training text, at least two windows long.
      test: the test text, at least two characters long.
      context: characters in a window, at least 1.

    Raises:
      InputError: `context` is too large for the training text.
      DataError: the test text has a character that the training text does not have.
    """
    if not 1 <= context <= len(train) // 2:
        raise InputError(
            f"context must be from 1 to {len(train) // 2}, half of the training text of {name}; got"
            f" {context}."
        )
    codes = _codes(train)
    known = np.unique(codes)
    if len(unknown := np.setdiff1d(_codes(test), known)):
        raise DataError(
            f"data: {chr(unknown[0])!r} is in the test text of {name}, but not in its training"
            " text."
        )
    tokens = [np.searchsorted(known, each).astype(np.int32) for each in (codes, _codes(test))]
    return Text(name, *tokens, vocabulary="".join(map(chr, known)), context=context)


def _codes(text: str) -> np.ndarray:
    """The code point of every character."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")
