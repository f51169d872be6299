"""A data set of text: windows of characters, of which each is to be followed by the next.

In training every epoch goes over the text once, cut into windows from another offset and shuffled. Testing goes over
the test text once, in order; each window begins without memory of the one before, so that a model is tested on as much
context as it was trained on.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int32

from train.data.dataset import Batch, DataError
from train.errors import InputError


class Text(NamedTuple):
    """A `Dataset` whose inputs and labels are int32 (n, context): labels are the inputs, one character later."""

    name: str
    train: Int32[np.ndarray, "n"]  # characters, as their places in the vocabulary
    test: Int32[np.ndarray, "m"]  # likewise
    vocabulary: str  # the characters of the training text, sorted
    context: int  # characters in a window

    @property
    def num_classes(self) -> int:
        """How many characters there are to choose from."""
        return len(self.vocabulary)

    @property
    def train_size(self) -> int:
        """How many windows an epoch has: one less than fit, so that there is room for every offset."""
        return len(self.train) // self.context - 1

    @property
    def test_size(self) -> int:
        """How many windows hold each test character once, but the first, which nothing comes before."""
        return -(-(len(self.test) - 1) // self.context)

    def order(self, generator: np.random.Generator) -> Int[np.ndarray, "train_size"]:
        """Where the windows of an epoch begin: end to end, from a random offset on, shuffled."""
        offset = generator.integers(len(self.train) - self.train_size * self.context)
        return offset + self.context * generator.permutation(self.train_size)

    def train_batch(self, examples: Int[np.ndarray, "n"], noise: Float[np.ndarray, "n 3"]) -> Batch:
        """The windows of the training text that begin there."""
        del noise
        characters = self.train[self._places(examples)]
        return {"inputs": characters[:, :-1], "labels": characters[:, 1:]}

    def test_batch(self, positions: Int[np.ndarray, "n"]) -> Batch:
        """Windows of the test text, end to end; past the end stands the last character, which weighs nothing."""
        places = self._places(positions * self.context)
        characters = self.test[np.minimum(places, len(self.test) - 1)]
        weights = (places[:, 1:] < len(self.test)).astype(np.float32)
        return {"inputs": characters[:, :-1], "labels": characters[:, 1:], "weights": weights}

    def _places(self, starts: np.ndarray) -> np.ndarray:
        """The places of each window's characters, and of the one that follows, (n, context + 1)."""
        return starts[:, None] + np.arange(self.context + 1)


def make_text(name: str, train: str, test: str, context: int) -> Text:
    """The data set of two texts, with the vocabulary of the one for training.

    Args:
      name: what the data set is called.
      train: the text for training.
      test: the text for testing, of at least two characters.
      context: characters in a window, at least 1; the training text holds at least two windows.

    Raises:
      InputError: `context` is too large for the training text.
      DataError: the test text has a character that the training text does not have.
    """
    if not 1 <= context <= len(train) // 2:
        raise InputError(
            f"context must be from 1 to {len(train) // 2}, half of the training text of {name}; got {context}."
        )
    codes = _codes(train)
    known = np.unique(codes)
    if len(unknown := np.setdiff1d(_codes(test), known)):
        raise DataError(f"data: the test text of {name} has {chr(unknown[0])!r}, which is not in its training text.")
    tokens = [np.searchsorted(known, each).astype(np.int32) for each in (codes, _codes(test))]
    return Text(name, *tokens, vocabulary="".join(map(chr, known)), context=context)


def _codes(text: str) -> np.ndarray:
    """The code point of every character."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")
