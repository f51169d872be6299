"""The program of a run whose workers share a device: the result of as many devices, and settings that do not fit."""

import dataclasses

import pytest
from train_helpers import ALONE

from train.config import Config
from train.errors import InputError
from train.loop import run
from train.setup import prepare

# Eight devices, and the same eight workers on one.
ON_DEVICES = Config(**ALONE, batch_size=128, workers=8, epochs=1.0, compressor="error_feedback(top_k(0.05))")
ON_ONE = dataclasses.replace(ON_DEVICES, vmap=True)


def test_a_run_ends_where_it_ends_on_as_many_devices_and_goes_on_where_it_was_stopped(tmp_path):
    expected = run(ON_DEVICES)
    config = dataclasses.replace(ON_ONE, workdir=str(tmp_path), checkpoint_every_steps=4)
    summary = run(config)
    for name in ("test_loss", "train_loss", "test_accuracy"):
        assert summary[name] == pytest.approx(expected[name], rel=1e-4)
    for name in ("bytes_per_step", "final_bytes_per_step", "dense_bytes_per_step", "steps", "workers", "compressor"):
        assert summary[name] == expected[name]
    # Without its seal the last checkpoint does not count: as if the run had been killed while saving it.
    (tmp_path / "checkpoints" / "11" / "sha256.json").unlink()
    again = run(config)
    assert again | {"seconds": 0} == summary | {"seconds": 0}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"workers": None}, "their number has to be given; use --workers N"),
        ({"nodes": 2}, "one device of one process; got nodes=2"),
        ({"num_processes": 2}, "got nodes=None and num_processes=2. Use --no-vmap"),
        ({"workers": 3}, "Use --batch-size 126 or 129"),
    ],
)
def test_settings_that_do_not_fit_are_told_before_anything_starts(changes, told):
    with pytest.raises(InputError) as error:
        prepare(dataclasses.replace(ON_ONE, **changes), None)
    assert told in str(error.value)
