"""The fingerprint of a data set changes with its examples, and with nothing else."""

import numpy as np
import pytest

from train.data.fingerprint import fingerprint
from train.data.images import Split
from train.data.registry import load_dataset
from train.data.text import make_text


def test_the_same_data_have_the_same_fingerprint():
    assert fingerprint(load_dataset("digits")) == fingerprint(load_dataset("digits"))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("changed", ["images", "labels"])
def test_another_value_anywhere_is_another_fingerprint(changed, split):
    digits = load_dataset("digits")
    arrays = {
        name: np.array(getattr(getattr(digits, split), name)) for name in ("images", "labels")
    }
    # Half of the thousand examples that are read are in these.
    arrays[changed][::2] += 1
    other = digits._replace(**{split: Split(arrays["images"], arrays["labels"])})
    assert fingerprint(other) != fingerprint(digits)


def test_other_examples_with_the_same_sizes_are_another_fingerprint():
    texts = [make_text("abc", text * 100, "abc", context=5) for text in ("abc", "acb")]
    first, second = map(fingerprint, texts)
    assert first != second
    assert first.split(", SHA")[0] == second.split(", SHA")[0] == "abc, 59 and 1 examples"
