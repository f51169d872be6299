"""The training step of workers that share a device: the result of as many devices."""

import dataclasses

import pytest
from train_helpers import ALONE

from train.config import Config
from train.errors import InputError
from train.loop import train
from train.startup import prepare_run

# Eight devices, and the same eight workers on one.
ON_DEVICES = Config(
    **ALONE, batch_size=128, workers=8, epochs=1.0, compressor="error_feedback(top_k(0.05))"
)
ON_ONE = dataclasses.replace(ON_DEVICES, vmap=True)


def test_run_on_one_device_equals_that_on_many():
    """tests/train/test_periods.py stops and resumes runs on one device."""
    expected = train(ON_DEVICES)
    summary = train(ON_ONE)
    for name in ("test_loss", "train_loss", "test_accuracy"):
        assert summary[name] == pytest.approx(expected[name], rel=1e-4)
    for name in (
        "bytes_per_step",
        "final_bytes_per_step",
        "dense_bytes_per_step",
        "steps",
        "workers",
        "compressor",
    ):
        assert summary[name] == expected[name]


def test_dense_bytes_that_are_counted_as_traced_are_those_of_the_compiled_step():
    compressed = dataclasses.replace(ON_DEVICES, epochs=0.1)
    dense = train(dataclasses.replace(compressed, compressor="dense()"))
    assert dense["bytes_per_step"] == train(compressed)["dense_bytes_per_step"] > 0


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"workers": None}, "their number must be given; use --workers N"),
        ({"nodes": 2}, "one device of one process; got nodes=2"),
        ({"num_processes": 2}, "got nodes=None and num_processes=2. Use --no-vmap"),
        ({"workers": 3}, "Use --batch-size 126 or 129"),
    ],
)
def test_inconsistent_settings_are_reported_before_anything_starts(changes, reported):
    with pytest.raises(InputError) as error:
        prepare_run(dataclasses.replace(ON_ONE, **changes), None)
    assert reported in str(error.value)
