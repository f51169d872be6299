"""How long a run under faults is, and the order of the rows."""

import pytest

from benchmarks.common import results
from benchmarks.faults.soak import RESULTS, Options


def test_rows_of_other_lengths_are_sorted_as_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    for minutes in (30.0, 5.0):
        RESULTS.save([{"minutes": minutes, "every": 15.0, "seed": 0}])
    assert [row["minutes"] for row in RESULTS.read()] == ["5.0", "30.0"]


@pytest.mark.parametrize("wrong", [{"minutes": 0.1}, {"every": 0.0}, {"every": -1.0}])
def test_there_is_time_for_a_fault(wrong):
    with pytest.raises(ValueError, match="at most a third of the run"):
        Options(**wrong)
