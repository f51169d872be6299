"""Data sets and batches: each example once per epoch, on any number of processes, resumable."""

import itertools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import assert_same_bits
from sklearn.datasets import load_digits

from train.data import batches
from train.data.dataset import DataError
from train.data.images import Images, Split, crop_and_flip
from train.data.registry import DATASETS, load_dataset
from train.data.tfds_reader import read_images

TFDS = Path(os.environ.get("TFDS_DATA_DIR", ""))


def needs(name):
    """Skips a test unless the data set is prepared."""
    prepared = "TFDS_DATA_DIR" in os.environ and (TFDS / name).is_dir()
    return pytest.mark.skipif(not prepared, reason=f"needs {name} prepared in TFDS_DATA_DIR")


def numbered(train_size=50, test_size=11, augment=None):
    """A data set whose labels number its examples and whose images are random."""
    rng = np.random.default_rng(0)

    def split(size):
        return Split(
            rng.integers(0, 256, (size, 8, 8, 3), np.uint8), np.arange(size, dtype=np.int32)
        )

    return Images(
        "numbered",
        split(train_size),
        split(test_size),
        10,
        (120.0, 128.0, 136.0),
        (60.0, 64.0, 68.0),
        augment,
    )


def take(dataset, count, batch_size=12, **kwargs):
    return list(
        itertools.islice(batches.train_batches(dataset, batch_size, **{"seed": 0} | kwargs), count)
    )


def joined(parts, key):
    return np.concatenate([part[key] for part in parts])


# Training batches


def test_every_example_is_used_at_most_once_per_epoch_and_only_the_remainder_is_dropped():
    dataset = numbered()
    steps = batches.steps_per_epoch(dataset, 12)
    assert steps == 4
    labels = joined(take(dataset, 3 * steps), "labels").reshape(3, steps * 12)
    assert all(len(set(epoch)) == steps * 12 for epoch in labels)


def test_every_example_is_used_once_per_epoch_if_batches_divide_it():
    dataset = numbered(train_size=48)
    labels = joined(take(dataset, 8), "labels").reshape(2, 48)
    np.testing.assert_array_equal(np.sort(labels), [np.arange(48)] * 2)


def test_each_epoch_and_each_seed_has_a_different_order():
    dataset = numbered(train_size=48)
    orders = [joined(take(dataset, 12, seed=seed), "labels").reshape(3, 48) for seed in (0, 1)]
    distinct = {tuple(order) for epochs in orders for order in epochs}
    assert len(distinct) == 6


def test_same_seed_same_batches():
    dataset = numbered(augment=crop_and_flip)
    assert_same_bits(take(dataset, 9), take(dataset, 9))


@pytest.mark.parametrize("process_count", [2, 3])
def test_rows_of_all_processes_are_the_global_batch(process_count):
    dataset = numbered(augment=crop_and_flip)
    whole = take(dataset, 9)
    parts = [
        take(dataset, 9, process_index=p, process_count=process_count) for p in range(process_count)
    ]
    rejoined = [
        {key: joined(rows, key) for key in ("inputs", "labels")}
        for rows in zip(*parts, strict=True)
    ]
    assert_same_bits(rejoined, whole)


def test_images_are_normalized_float32_and_keep_their_labels():
    dataset = numbered()
    (batch,) = take(dataset, 1)
    assert batch["inputs"].dtype == np.float32
    assert batch["labels"].dtype == np.int32
    expected = (dataset.train.images[batch["labels"]] - np.array(dataset.mean)) / np.array(
        dataset.std
    )
    np.testing.assert_allclose(batch["inputs"], expected, atol=1e-6)


@pytest.mark.parametrize("taken", [0, 3, 6])
def test_resuming_is_bit_identical(taken):
    dataset = numbered(augment=crop_and_flip)
    iterator = batches.train_batches(dataset, 12, seed=0)
    for _ in range(taken):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))

    resumed = batches.train_batches(dataset, 12, seed=0)
    resumed.set_state(state)
    assert_same_bits(list(itertools.islice(resumed, 6)), list(itertools.islice(iterator, 6)))


def test_state_is_the_same_on_every_process():
    dataset = numbered()
    iterators = [
        batches.train_batches(dataset, 12, 0, process_index=p, process_count=2) for p in range(2)
    ]
    for _ in range(5):
        for iterator in iterators:
            next(iterator)
    assert iterators[0].get_state() == iterators[1].get_state()


@pytest.mark.parametrize(
    "read", [lambda *args: batches.train_batches(*args[:2], 0, *args[2:]), batches.test_batches]
)
def test_batch_size_must_divide_over_the_processes(read):
    with pytest.raises(ValueError, match="multiple of their number, 5; got 12"):
        read(numbered(), 12, 0, 5)


def test_batch_size_must_not_exceed_the_data():
    with pytest.raises(ValueError, match="at most the 50 training examples; got 64"):
        batches.train_batches(numbered(), 64, 0)


def test_process_index_must_be_one_of_the_processes():
    with pytest.raises(ValueError, match=r"in \[0, 2\); got 2"):
        batches.train_batches(numbered(), 12, 0, 2, 2)


# Test batches


@pytest.mark.parametrize("test_size", [11, 12, 13])
def test_test_batches_hold_every_example_once_in_order(test_size):
    read = list(batches.test_batches(numbered(test_size=test_size), 4))
    assert {batch["inputs"].shape for batch in read} == {(4, 8, 8, 3)}
    real = joined(read, "weights") == 1
    np.testing.assert_array_equal(joined(read, "labels")[real], np.arange(test_size))
    np.testing.assert_array_equal(joined(read, "weights")[~real], 0)


def test_rows_of_all_processes_are_the_global_test_batch():
    dataset = numbered()
    parts = [
        list(batches.test_batches(dataset, 8, process_index=p, process_count=2)) for p in range(2)
    ]
    rejoined = [{key: joined(rows, key) for key in rows[0]} for rows in zip(*parts, strict=True)]
    assert_same_bits(rejoined, list(batches.test_batches(dataset, 8)))


def test_test_images_are_not_augmented():
    plain, augmented = numbered(), numbered(augment=crop_and_flip)
    assert_same_bits(list(batches.test_batches(plain, 4)), list(batches.test_batches(augmented, 4)))


# Augmentation


def test_central_crop_without_mirroring_is_the_identity():
    images = numbered().train.images
    np.testing.assert_array_equal(crop_and_flip(images, np.full((50, 3), [0.5, 0.5, 0.0])), images)


def test_central_crop_with_mirroring_mirrors():
    images = numbered().train.images
    np.testing.assert_array_equal(
        crop_and_flip(images, np.full((50, 3), [0.5, 0.5, 0.5])), images[:, :, ::-1]
    )


def test_extreme_crops_shift_by_four_pixels_and_fill_with_black():
    images = numbered().train.images
    first = crop_and_flip(images, np.zeros((50, 3)))
    np.testing.assert_array_equal(first[:, 4:, 4:], images[:, :4, :4])
    assert not first[:, :4].any()
    assert not first[:, :, :4].any()
    last = crop_and_flip(images, np.full((50, 3), [0.999999, 0.999999, 0.0]))
    np.testing.assert_array_equal(last[:, :4, :4], images[:, 4:, 4:])


def test_all_shifts_and_both_directions_are_equally_likely():
    # One bright pixel in the middle of 9x9 shows the shift of each image.
    images = np.zeros((8100, 9, 9, 1), np.uint8)
    images[:, 4, 4] = 1
    moved = crop_and_flip(images, np.random.default_rng(0).random((8100, 3)))
    counts = moved.sum(axis=(0, 3))
    assert counts.sum() == 8100
    # 100 are expected for each of the 81 shifts; the standard deviation is 10.
    assert counts.min() > 50
    assert counts.max() < 150


# Data sets


def test_split_of_the_digits_is_fixed_and_stratified():
    first, second = load_dataset("digits"), load_dataset("digits")
    assert (first.train_size, first.test_size, first.num_classes) == (1437, 360, 10)
    assert first.train.images.shape[1:] == (8, 8, 1)
    assert_same_bits(
        [first.train._asdict(), first.test._asdict()],
        [second.train._asdict(), second.test._asdict()],
    )
    assert np.bincount(first.test.labels).min() >= 34


def test_train_and_test_digits_are_all_digits():
    dataset = load_dataset("digits")
    images = np.concatenate([dataset.train.images, dataset.test.images]).reshape(1797, 64)
    np.testing.assert_array_equal(np.unique(images, axis=0), np.unique(load_digits().data, axis=0))


def test_validation_examples_are_training_examples_that_are_not_trained_on():
    whole, held_out = load_dataset("digits"), load_dataset("digits", evaluated="validation")
    assert (held_out.train_size, held_out.test_size) == (1437 - 143, 143)
    joined = {
        name: np.concatenate([getattr(split, name) for split in (held_out.train, held_out.test)])
        for name in ("images", "labels")
    }
    assert_same_bits([joined], [whole.train._asdict()])


def test_unknown_data_set_names_the_nearest_and_all():
    with pytest.raises(ValueError, match=r"minst.*'mnist'") as raised:
        load_dataset("minst")
    assert all(name in str(raised.value) for name in DATASETS)


@pytest.mark.parametrize(
    ("name", "train_size", "image_shape"),
    [
        ("digits", 1437, (8, 8, 1)),
        pytest.param("mnist", 60_000, (28, 28, 1), marks=needs("mnist")),
        # It is read as MNIST is, and that takes long.
        pytest.param("cifar10", 50_000, (32, 32, 3), marks=[needs("cifar10"), pytest.mark.slow]),
    ],
)
def test_training_images_have_mean_zero_and_deviation_one(name, train_size, image_shape):
    dataset = load_dataset(name)
    assert dataset.train.images.shape == (train_size, *image_shape)
    assert dataset.train.images.dtype == np.uint8
    assert set(dataset.train.labels) == set(dataset.test.labels) == set(range(10))
    images = dataset.normalized(dataset.train.images[::5])
    np.testing.assert_allclose(images.mean(axis=(0, 1, 2)), 0, atol=0.02)
    np.testing.assert_allclose(images.std(axis=(0, 1, 2)), 1, atol=0.02)


# Missing and damaged data


def test_missing_data_set_says_what_where_and_how_to_prepare_it(tmp_path):
    with pytest.raises(DataError) as raised:
        load_dataset("mnist", str(tmp_path))
    message = str(raised.value)
    assert "'mnist'" in message
    assert str(tmp_path / "mnist") in message
    assert "pip install -e '.[prepare]'" in message
    assert f"python -m train.data prepare mnist --data-dir {tmp_path}\n" in message
    assert not any(tmp_path.iterdir())


def test_data_dir_comes_from_the_environment_where_none_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match="elsewhere"):
        load_dataset("cifar10")


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path):
    content = bytearray(path.read_bytes())
    content[500_000:500_100] = bytes(100)
    path.write_bytes(content)


@needs("mnist")
@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("mnist-test.array_record-00000-of-00001", Path.unlink),
        ("mnist-test.array_record-00000-of-00001", truncate),
        ("mnist-test.array_record-00000-of-00001", garble),
        ("dataset_info.json", Path.unlink),
        ("dataset_info.json", truncate),
    ],
)
def test_damaged_data_set_is_one_clear_error(tmp_path, file, damage):
    for source in (TFDS / "mnist").glob("*/*"):
        if "train" not in source.name:
            copy = tmp_path / source.relative_to(TFDS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
    assert len(read_images("mnist", "test", str(tmp_path)).labels) == 10_000
    (target,) = tmp_path.glob(f"mnist/*/{file}")
    damage(target)
    with pytest.raises(DataError, match="missing or incomplete"):
        read_images("mnist", "test", str(tmp_path))
