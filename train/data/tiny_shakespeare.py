"""Tiny Shakespeare: 1.1 million characters of his plays, 65 different ones; 90 % for training, then 5 % and 5 %.

The test split is what a run is tested on, as with the other data sets; the validation split is not read.

Reference: Karpathy, `The Unreasonable Effectiveness of Recurrent Neural Networks
<https://karpathy.github.io/2015/05/21/rnn-effectiveness/>`_, 2015
"""

from train.data.prepared import read_text
from train.data.text import Text, make_text


def tiny_shakespeare(data_dir: str | None = None, context: int = 64) -> Text:
    """Tiny Shakespeare as prepared by TensorFlow Datasets in `data_dir`, in windows of `context` characters."""
    train, test = (read_text("tiny_shakespeare", split, data_dir) for split in ("train", "test"))
    return make_text("tiny_shakespeare", train, test, context)
