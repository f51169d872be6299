"""Text in windows: read once per epoch, each test character counted once, on any processes."""

import itertools
import json

import numpy as np
import pytest
from helpers import assert_same_bits

from train.data import batches
from train.data.dataset import DataError
from train.data.text import Text, make_text
from train.errors import InputError

CONTEXT, LENGTH = 8, 103
# All characters differ and are sorted, so a character is its own position.
LETTERS = "".join(map(chr, range(0x3B1, 0x3B1 + LENGTH)))
WINDOWS = 11  # 103 // 8 - 1


def numbered(test_length: int = 29) -> Text:
    """A data set whose training characters are their positions; the test text is reversed."""
    return make_text("numbered", LETTERS, LETTERS[:test_length][::-1], CONTEXT)


def take(count: int, batch_size: int = WINDOWS, **kwargs) -> list[dict[str, np.ndarray]]:
    return list(
        itertools.islice(
            batches.train_batches(numbered(), batch_size, **{"seed": 0} | kwargs), count
        )
    )


def test_labels_are_the_inputs_one_character_later():
    (batch,) = take(1)
    assert batch["inputs"].shape == batch["labels"].shape == (WINDOWS, CONTEXT)
    assert batch["inputs"].dtype == batch["labels"].dtype == np.int32
    np.testing.assert_array_equal(batch["labels"], batch["inputs"] + 1)
    np.testing.assert_array_equal(batch["inputs"], batch["inputs"][:, :1] + np.arange(CONTEXT))


def test_every_epoch_reads_the_text_once():
    for batch in take(20):
        labels = np.sort(batch["labels"].ravel())
        np.testing.assert_array_equal(labels, labels[0] + np.arange(WINDOWS * CONTEXT))


def test_windows_are_shuffled_and_start_at_a_new_offset_every_epoch():
    starts = [batch["inputs"][:, 0] for batch in take(200)]
    offsets = {int(epoch.min()) for epoch in starts}
    # From the start of the text up to the offset at which the last window ends with the text.
    assert offsets == set(range(LENGTH - WINDOWS * CONTEXT))
    assert len({tuple(np.argsort(epoch)) for epoch in starts}) == 200


def test_each_seed_has_a_different_order():
    assert not np.array_equal(take(1)[0]["inputs"], take(1, seed=1)[0]["inputs"])


@pytest.mark.parametrize("process_count", [2, 3])
def test_rows_of_all_processes_are_the_global_batch(process_count):
    parts = [take(9, 6, process_index=p, process_count=process_count) for p in range(process_count)]
    rejoined = [
        {key: np.concatenate([part[key] for part in rows]) for key in rows[0]}
        for rows in zip(*parts, strict=True)
    ]
    assert_same_bits(rejoined, take(9, 6))


def test_resuming_is_bit_identical():
    iterator = batches.train_batches(numbered(), 3, seed=0)
    for _ in range(5):
        next(iterator)
    resumed = batches.train_batches(numbered(), 3, seed=0)
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    assert_same_bits(list(itertools.islice(resumed, 6)), list(itertools.islice(iterator, 6)))


@pytest.mark.parametrize("test_length", [2, 9, 10, 29, 33])
def test_each_test_character_but_the_first_counts_once_in_order(test_length):
    dataset = numbered(test_length)
    read = list(batches.test_batches(dataset, 2))
    assert {batch[key].shape for batch in read for key in batch} == {(2, CONTEXT)}
    inputs, labels, weights = (
        np.concatenate([batch[key] for batch in read]) for key in ("inputs", "labels", "weights")
    )
    np.testing.assert_array_equal(labels[weights == 1], dataset.test[1:])
    np.testing.assert_array_equal(inputs[weights == 1], dataset.test[:-1])
    assert weights.sum() == test_length - 1


def test_rows_of_all_processes_are_the_global_test_batch():
    parts = [
        list(batches.test_batches(numbered(), 4, process_index=p, process_count=2))
        for p in range(2)
    ]
    rejoined = [
        {key: np.concatenate([part[key] for part in rows]) for key in rows[0]}
        for rows in zip(*parts, strict=True)
    ]
    assert_same_bits(rejoined, list(batches.test_batches(numbered(), 4)))


def test_vocabulary_is_that_of_the_training_text():
    dataset = make_text("few", "hello, world\n" * 2, "hello", 4)
    assert dataset.vocabulary == "\n ,dehlorw"
    assert dataset.num_classes == 10
    assert "".join(dataset.vocabulary[token] for token in dataset.test) == "hello"


def test_unknown_test_character_is_reported():
    with pytest.raises(DataError, match="'z' is in the test text of few"):
        make_text("few", "hello, world", "hzllo", 4)


@pytest.mark.parametrize("context", [0, 7, 100])
def test_context_must_fit_twice_into_the_text(context):
    with pytest.raises(
        InputError, match=f"context must be from 1 to 6, half .* of few; got {context}"
    ):
        make_text("few", "hello, world\n", "hello", context)


def test_largest_context_leaves_one_window():
    assert make_text("few", "hello, world\n", "hello", 6).train_size == 1
