"""The settings of the tasks are those of the training program, at a constant rate."""

import pytest

from benchmarks.time_to_accuracy.specification import PART_STEPS
from benchmarks.time_to_accuracy.tasks import TASKS, config_of, unprepared
from train.config_rules import check_config


@pytest.mark.parametrize("task", TASKS)
def test_every_config_is_valid_and_validates_before_it_ends(task):
    config = config_of(TASKS[task], seed=3)
    check_config(config)
    assert (config.seed, config.schedule, config.compressor) == (3, "constant", "dense()")
    assert TASKS[task].most_steps % TASKS[task].check_every == 0
    # Two rates have whole parts.
    assert TASKS[task].check_every % PART_STEPS == 0
    assert TASKS[task].check_every >= 2 * PART_STEPS
    # Both frameworks split a batch over two or four hosts.
    assert config.batch_size % 4 == 0


def test_data_sets_that_are_not_prepared_are_named_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    images, text = unprepared(["CNN on MNIST", "transformer 4M", "transformer 0.4M"])
    assert images.startswith(f"mnist, which is not prepared in {tmp_path}")
    assert "sudo TFDS_DATA_DIR" in text and "prepare tiny_shakespeare" in text
