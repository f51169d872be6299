"""Training with adaptive levels: their log, their bytes, the rate of the link, interruption."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from helpers import slow
from train_helpers import ALONE, StopAfter, logged, summary_of, train_together

from benchmarks.faults.saved import saved_arrays
from jaxcompress import compress, data_mesh, parse
from train.config import Config
from train.errors import InputError
from train.levels import adaptive_states, counted_levels, first_rate
from train.loop import train
from train.signals import InterruptedRunError

# One process runs them all, so that it compiles once.
pytestmark = pytest.mark.xdist_group("levels")

# An epoch of the digits has 11 steps.
RULE = "accordion(threshold=100.0, every=3)"  # weak, weak until the second decision, then strong
ADAPTIVE = Config(
    **ALONE,
    workers=4,
    vmap=True,
    epochs=1.0,
    compressor=f"error_feedback(adaptive({RULE}, block_top_k(0.2), block_top_k(0.01)))",
    log_every_steps=1,
)


def lines_of(workdir: str) -> list[dict]:
    return [line for line in logged(Path(workdir)) if "level" in line]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of 11 steps and its summary."""
    config = dataclasses.replace(ADAPTIVE, workdir=str(tmp_path_factory.mktemp("run")))
    return config, train(config)


def test_levels_and_their_bytes_are_logged(whole):
    config, summary = whole
    lines = lines_of(config.workdir)
    assert [line["level"] for line in lines] == [0] * 5 + [1] * 6
    assert [line["level_changes"] for line in lines] == [0] * 5 + [1] * 6
    weak, strong = summary["bytes_per_step"], summary["final_bytes_per_step"]
    # The level of a line is that of the next step: six steps were weak and five strong.
    assert lines[5]["bytes_sent"] == 6 * weak
    assert lines[-1]["bytes_sent"] == 6 * weak + 5 * strong
    assert summary["mean_bytes_per_step"] == pytest.approx((6 * weak + 5 * strong) / 11)
    assert strong < weak / 5


@pytest.mark.parametrize("steps", [*slow(2), 7])
def test_a_run_that_stops_between_two_decisions_resumes_as_it_was(whole, steps, tmp_path):
    config, summary = whole
    again = dataclasses.replace(config, workdir=str(tmp_path))
    with pytest.raises(InterruptedRunError, match=f"stopped after step {steps}"):
        train(again, StopAfter(steps))
    resumed = train(again)
    assert resumed | {"seconds": 0} == summary | {"seconds": 0}
    one, other = (saved_arrays(Path(each.workdir), 11) for each in (config, again))
    assert one.keys() == other.keys()
    assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.slow
def test_with_a_period_levels_are_those_of_the_averages():
    """The second decision is after the fourth of six synchronisations."""
    text = ADAPTIVE.compressor.replace("every=3", "every=2")
    config = dataclasses.replace(ADAPTIVE, period=2, compressor=text)
    strong = dataclasses.replace(config, compressor="error_feedback(block_top_k(0.01))")
    weak = dataclasses.replace(config, compressor="error_feedback(block_top_k(0.2))")
    found, *fixed = (train(each) for each in (config, strong, weak))
    weakest, strongest = (one["peak_bytes_per_step"] for one in reversed(fixed))
    assert found["mean_bytes_per_step"] == pytest.approx((4 * weakest + 2 * strongest) / 11)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"bucket_mib": 0.02}, {"optimizer": "onebit_adam"}])
def test_levels_that_cannot_be_told_apart_count_as_what_sends_most(changes):
    found = train(dataclasses.replace(ADAPTIVE, learning_rate=1e-3, **changes))
    assert found["mean_bytes_per_step"] == found["peak_bytes_per_step"]


def state_of(text):
    """A compressor, and its state for one matrix."""
    compressor = parse(text)
    return compressor, compress(compressor).init({"kernel": np.zeros((64, 64), np.float32)})


@pytest.mark.parametrize(
    ("first", "levels"),
    [
        ("top_k(0.2)", 2),
        ("acp_sgd(4)", 0),
        ("switch(warmup(9), dense(), top_k(0.2))", 0),
        (f"adaptive({RULE}, top_k(0.3), top_k(0.2))", 0),
    ],
)
def test_levels_are_counted_one_by_one_if_nothing_else_chooses(first, levels):
    compressor, state = state_of(f"error_feedback(adaptive({RULE}, {first}, top_k(0.01)))")
    assert counted_levels(ADAPTIVE, compressor, adaptive_states(state)) == levels


def test_a_rule_inside_a_level_is_given_the_rate_of_the_link():
    inner = "adaptive(bandwidth(1e8), top_k(0.2), top_k(0.1))"
    _, state = state_of(f"error_feedback(adaptive({RULE}, {inner}, top_k(0.01)))")
    assert first_rate(state, data_mesh(2)).keys() == {"bandwidth"}


@pytest.mark.slow
def test_skipped_steps_send_as_the_others(monkeypatch):
    """A loss scale of 2^24 overflows in float16 until it has been halved some times."""
    monkeypatch.setattr(Config, "loss_scale", 2.0**24)
    config = dataclasses.replace(ADAPTIVE, precision="float16")
    summary = train(config)
    assert summary["skipped_steps"] >= 6
    assert summary["mean_bytes_per_step"] == summary["bytes_per_step"]


# tests/distributed/test_agreed_numbers.py has processes that agree, and measuring is in planning.
@pytest.mark.slow
def test_two_processes_measure_the_link_and_agree_on_the_level(tmp_path):
    """No link has 1,000 Tbit/s, so a measured one has the strongest level.

    Between two processes of one machine time often cannot tell; such a rate is infinite, and null.
    """
    text = "error_feedback(adaptive(bandwidth(1e15), top_k(0.2), top_k(0.01)))"
    options = (*("--workers", "2", "--epochs", "1", "--log-every-steps", "1"), "--compressor", text)
    options = (*options, "--measure-bandwidth-every-steps", "1")
    runs = train_together(*[(*options, "--workdir", str(tmp_path))] * 2)
    summary = summary_of(runs[0])
    lines = lines_of(str(tmp_path))
    assert [line["level"] for line in lines] == [
        int(line["bandwidth"] is not None) for line in lines
    ]
    assert sum(line["level"] for line in lines) > 0
    assert summary["mean_bytes_per_step"] < summary["bytes_per_step"]


def test_levels_that_need_the_loss_are_refused_with_a_period():
    text = "error_feedback(adaptive(accuracy(3.0), top_k(0.2), top_k(0.01)))"
    with pytest.raises(InputError, match=r"reads the training loss.*take another rule"):
        train(dataclasses.replace(ADAPTIVE, compressor=text, period=4))


def test_the_steps_between_two_measurements_are_at_least_one():
    with pytest.raises(InputError, match="measure_bandwidth_every_steps must be at least 1 and"):
        train(dataclasses.replace(ADAPTIVE, measure_bandwidth_every_steps=0))
