"""Numbers on which processes agree; two real ones are in tests/planning/test_plan.py."""

import numpy as np

from jaxcompress.distributed import agreed_numbers


def test_one_process_agrees_with_itself():
    assert agreed_numbers.agreed([1.0, 2.5]) == [1.0, 2.5]


def test_the_largest_counts_or_what_is_chosen(monkeypatch):
    everyone = np.float32([[1, 5], [3, 4]])
    monkeypatch.setattr(agreed_numbers.multihost_utils, "process_allgather", lambda own: everyone)
    assert agreed_numbers.agreed([1.0, 5.0]) == [3, 5]
    assert agreed_numbers.agreed([1.0, 5.0], np.min) == [1, 4]


def test_the_median_of_the_runs(monkeypatch):
    seconds = iter([0.0, 0.5, 1.0, 1.1, 2.0, 2.2])
    monkeypatch.setattr(agreed_numbers.time, "perf_counter", lambda: next(seconds))
    found = agreed_numbers.agreed_milliseconds(lambda: None, 3)
    assert abs(found - 200) < 1e-3
