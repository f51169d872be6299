"""What a row says of a run that reached its target, and of one that did not."""

from unittest.mock import MagicMock

import pytest

from benchmarks.hosts.host_processes import Measured
from benchmarks.time_to_accuracy import measure
from benchmarks.time_to_accuracy.measure import check_same_losses, results, run, shares
from benchmarks.time_to_accuracy.methods import METHODS

ABOUT = {"parameters": 7, "compile_seconds": 1.5, "version": "jax 1", "python": "3"}
TEST = {"loss": 1.9, "accuracy": 0.4}
CURVE = [(50, 10.0, 3.0, 2.5), (100, 20.0, 6.0, 1.9)]


def test_a_run_that_reached_the_target():
    found = results(CURVE, 1.95, TEST, ABOUT)
    assert (found["seconds"], found["steps"], found["megabytes"]) == ("20.00", 100, "6.00")
    assert found["seconds_per_step"] == "0.2000"
    assert found["curve"] == "50:10.00:3.00:2.5000 100:20.00:6.00:1.9000"


def test_a_run_that_missed_it_has_no_time():
    found = results(CURVE, 1.8, TEST, ABOUT)
    assert (found["seconds"], found["steps"], found["megabytes"]) == ("", "", "")
    assert found["validation_loss"] == "1.9000"


@pytest.mark.parametrize("difference", [5e-4, 2e-3, float("nan")])
def test_frameworks_that_train_differently_are_refused(difference, monkeypatch):
    def processes_of(specification, hosts, python):
        torch = specification.method.framework == "torch"
        losses = [2.0 + (difference if torch else 0.0)] * 20
        processes = MagicMock()
        measured = Measured([1.0], 0.0, 0.0, {}, {"losses": losses})
        processes.__enter__.return_value.measure.return_value = measured
        return processes

    monkeypatch.setattr(measure, "processes_of", processes_of)
    hosts, pythons = MagicMock(), {"jax": "", "torch": ""}
    if difference < 1e-3:
        assert check_same_losses("CNN on MNIST", hosts, pythons) == pytest.approx(difference)
        hosts.shape.assert_called_once_with("100gbit")
        return
    with pytest.raises(RuntimeError, match="do not train the same"):
        check_same_losses("CNN on MNIST", hosts, pythons)


def test_the_runs_that_are_timed_again_are_methods():
    assert set(measure.CHECKED) <= {method.label for method in METHODS}


def test_steps_are_shared_by_the_rates():
    assert shares(["1gbit", "100mbit"], 50) == {"1gbit": 40, "100mbit": 10}
    assert shares(["100mbit"], 50) == {"100mbit": 50}


def test_one_run_gives_a_row_per_rate(monkeypatch):
    """Step times depend on the rate alone, except in the first steps, which take longer once."""
    hosts, processes = MagicMock(hosts=("a", "b")), MagicMock()
    losses, first_steps = iter([2.5, 2.3, 1.9]), iter([5000.0])

    def measured(program, warm_up, repeats):
        if program == "validation":
            return Measured([1.0], 0.0, 0.0, {}, {"loss": next(losses)})
        if program == "test":
            return Measured([1.0], 0.0, 0.0, {}, TEST)
        rate = hosts.shape.call_args.args[0]
        ms, sent = {"1gbit": (20.0, 1e6), "100mbit": (200.0, 2e6)}[rate]
        return Measured([next(first_steps, ms)] * repeats, sent, 0.0, {})

    processes.measure.side_effect = measured
    processes.ready.return_value = ABOUT
    context = MagicMock(**{"__enter__.return_value": processes})
    monkeypatch.setattr(measure, "processes_of", lambda *_: context)
    fast, slow = run("transformer 0.4M", METHODS[1], 0, hosts, ["1gbit", "100mbit"], "")
    assert [each["steps"] for each in (fast, slow)] == [160, 160]
    # 5 s once and 15 parts of 20 or 200 ms; at 100 Mbit/s a megabyte takes 72 ms longer.
    assert (fast["rate"], fast["seconds"], fast["megabytes"]) == ("1gbit", "5.30", "16.00")
    assert (slow["rate"], slow["seconds"], slow["megabytes"]) == ("100mbit", "8.07", "31.00")
    assert (fast["again_seconds"], slow["again_seconds"]) == ("", "3.20")
