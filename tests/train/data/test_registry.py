"""Tiny Shakespeare: the published text, and the error message if it is missing."""

import os
from pathlib import Path

import numpy as np
import pytest

from train.data.dataset import DataError
from train.data.registry import tiny_shakespeare

needs_it = pytest.mark.skipif(
    not (
        Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()
        / "tiny_shakespeare"
    ).is_dir(),
    reason="Tiny Shakespeare is not prepared; set TFDS_DATA_DIR to where it is",
)


@needs_it
def test_text_is_the_published_one():
    dataset = tiny_shakespeare(context=64)
    assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (1_003_854, 55_770, 65)
    assert (dataset.train_size, dataset.test_size) == (15_684, 872)
    assert "".join(dataset.vocabulary[token] for token in dataset.train[:14]) == "First Citizen:"


@needs_it
def test_the_validation_text_is_between_the_training_text_and_the_test_text():
    validation, test = tiny_shakespeare(evaluated="validation"), tiny_shakespeare()
    assert len(validation.test) == 55_770
    np.testing.assert_array_equal(validation.train, test.train)
    assert not np.array_equal(validation.test, test.test)


def test_missing_text_says_what_where_and_how_to_prepare_it(tmp_path):
    with pytest.raises(DataError) as raised:
        tiny_shakespeare(str(tmp_path))
    assert "'train' split of 'tiny_shakespeare'" in str(raised.value)
    assert f"prepare tiny_shakespeare --data-dir {tmp_path}\n" in str(raised.value)
