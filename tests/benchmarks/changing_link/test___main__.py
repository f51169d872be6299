"""The table of training over a link that changes."""

import pytest

import jaxcompress
from benchmarks.changing_link.__main__ import METHODS, RATES, Options, table


def row(expression: str, part: int, speed: float, level: str = "") -> dict[str, str]:
    return {
        "compressor": expression,
        "part": str(part),
        "rate": RATES[part],
        "steps_per_second": str(speed),
        "steps": "10",
        "level": level,
    }


def test_all_steps_take_the_time_of_their_parts():
    speeds = (10, 2, 5)
    rows = [row("dense()", part, speed) for part, speed in enumerate(speeds)]
    rows += [row("a", part, 10, f"{part % 2}.0") for part in range(3)]
    dense, adaptive = table(rows)
    # 1 + 5 + 2 seconds for 30 steps.
    assert dense["all steps"] == "3.75"
    assert [dense[f"{place + 1}. {rate}/s"] for place, rate in enumerate(RATES)] == ["10", "2", "5"]
    assert (dense["levels"], adaptive["levels"]) == ("", "0, 1, 0")


@pytest.mark.parametrize("text", METHODS)
def test_every_method_is_a_compressor(text):
    assert jaxcompress.unparse(jaxcompress.parse(text)) == text


@pytest.mark.parametrize("options", [{"hosts": 1}, {"steps": 0}])
def test_invalid_numbers_are_refused(options):
    with pytest.raises(ValueError, match="hosts must be 2 to 250 and steps at least 1"):
        Options(**options)
