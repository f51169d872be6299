"""The table of a sharded model over a slow network."""

import pytest

from benchmarks.sharded_network.__main__ import METHODS, Options, shown


def row(compressor: str, step_ms: int, rate: str = "100mbit") -> dict[str, str]:
    numbers = {"step_ms": step_ms, "min_ms": step_ms - 1, "max_ms": step_ms + 1}
    sent = {"slow_bytes": 1000, "fast_bytes": 2000, "hosts": 2}
    return {
        "compressor": compressor,
        "rate": rate,
        **{name: str(value) for name, value in (numbers | sent).items()},
    }


def test_each_row_stands_beside_dense_of_its_own_network():
    rows = [row(METHODS[0], 400), row(METHODS[2], 100), row(METHODS[0], 120, "1gbit")]
    rows.append(row(METHODS[2], 240, "1gbit"))
    lines = [shown(one, rows) for one in rows]
    assert [line["times dense"] for line in lines] == ["1.00", "4.00", "1.00", "0.50"]
    assert lines[1]["ms per step"] == "100 (99 to 101)"
    assert lines[1]["steps per second"] == "10.00"
    assert lines[1]["bytes between hosts"] == "1,000"


@pytest.mark.parametrize("wrong", [{"hosts": 1}, {"repeats": 0}, {"rate": ("fast",)}])
def test_a_network_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        Options(**wrong)
