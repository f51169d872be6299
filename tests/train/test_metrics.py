"""What a run reports, and what of it survives an interruption."""

import io
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.writer import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from train_helpers import logged

from train.errors import InputError
from train.metrics import MetricsLog, drop_lines_after, to_json


def test_log_writes_lines_and_events(tmp_path):
    log = MetricsLog(tmp_path, step=0)
    log.write(1, {"train_loss": 0.5})
    log.write(2, {"train_loss": 0.25, "learning_rate": 0.1})
    log.close()
    assert logged(tmp_path) == [
        {"step": 1, "train_loss": 0.5},
        {"step": 2, "train_loss": 0.25, "learning_rate": 0.1},
    ]
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train_loss" in events.read_bytes()


def test_line_is_in_the_file_before_the_log_is_closed(tmp_path):
    log = MetricsLog(tmp_path, step=0)
    log.write(1, {"train_loss": 0.5})
    assert logged(tmp_path) == [{"step": 1, "train_loss": 0.5}]
    log.flush()
    assert [(each.step, value) for each, value in scalars(tmp_path)] == [(1, 0.5)]
    log.close()


def test_tensorboard_hides_events_of_steps_that_are_taken_again(tmp_path):
    MetricsLog(tmp_path, step=10).close()
    starts = [each for each in events_of(tmp_path) if each.HasField("session_log")]
    assert [each.step for each in starts] == [11]
    assert starts[0].session_log.status == SessionLog.START


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is full")
def test_a_full_disk_is_reported_for_the_events_too(tmp_path, monkeypatch):
    full = io.BufferedWriter(io.FileIO("/dev/full", "wb"))
    monkeypatch.setattr("tensorboardX.record_writer.open_file", lambda path: full)
    log = MetricsLog(tmp_path, step=0)
    for _ in range(2):
        with pytest.raises(InputError, match=r"metrics in .* No space left on device"):
            log.write(1, {"train_loss": 0.5})
            log.flush()
    log.close()
    full.raw.close()


def events_of(folder: Path) -> list[Any]:
    """What a reader of TensorBoard's file would see now."""
    (path,) = (folder / "tensorboard").iterdir()
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack("Q", data[:8])
        found.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return found


def scalars(folder: Path) -> list[tuple[Any, float]]:
    return [(each, one.simple_value) for each in events_of(folder) for one in each.summary.value]


def test_resumed_log_drops_lines_after_the_checkpoint(tmp_path):
    first = MetricsLog(tmp_path, step=0)
    for step in (5, 10, 15):
        first.write(step, {"train_loss": 1.0})
    first.close()
    second = MetricsLog(tmp_path, step=10)
    second.write(15, {"train_loss": 2.0})
    second.close()
    assert [(line["step"], line["train_loss"]) for line in logged(tmp_path)] == [
        (5, 1.0),
        (10, 1.0),
        (15, 2.0),
    ]


def test_incomplete_line_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 5}\n{"step": 1', encoding="utf-8")
    drop_lines_after(path, 10)
    assert logged(tmp_path) == [{"step": 5}]


def test_folder_in_place_of_the_metrics_is_reported(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(InputError, match=r"cannot be used: .*Is a directory"):
        MetricsLog(tmp_path, step=0)


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = MetricsLog(None, step=0)
    log.write(1, {"train_loss": 0.5})
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_not_finite_are_null():
    assert json.loads(to_json({"loss": math.nan, "norm": math.inf, "steps": 3})) == {
        "loss": None,
        "norm": None,
        "steps": 3,
    }
