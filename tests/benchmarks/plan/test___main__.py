"""From measured rows to the table and the sentences; measuring needs root and minutes."""

import pytest

from benchmarks.plan.__main__ import Options, choice, errors, networks, summary, table


def row(compressor, predicted, measured, chosen, hosts=2, rate="1gbit", excluded=0):
    return {
        "hosts": hosts,
        "rate": rate,
        "compressor": compressor,
        "predicted_ms": str(predicted),
        "measured_ms": str(measured),
        "excluded": excluded,
        "chosen": chosen,
    }


SLOW = [row("dense()", 90, 100, 0, rate="50mbit"), row("sign()", 30, 20, 1, rate="50mbit")]
FAST = [row("dense()", 20, 20, 1), row("sign()", 30, 25, 0)]


def test_a_line_for_each_network():
    first, second = table(SLOW + FAST)
    assert first["chosen"] == first["fastest that is not excluded"] == "`sign()`"
    assert first["dense: predicted ms"] == "90" and first["its measured ms"] == "20"
    assert first["worst"] == "+50%" and first["median error"] == "30%"
    assert second["chosen"] == "`dense()`"


def test_the_sentences_count_near_choices_and_right_refusals():
    assert errors(FAST) == pytest.approx([0.0, 0.2])
    text = summary(SLOW + FAST)
    assert "15% off in the median (15% with 2 hosts) and +50% at worst" in text
    assert "10 % of the fastest in 2 of 2 networks. Dense is the fastest of them in 1, and" in text
    assert text.endswith("the plan says so in 1 of these.")
    wrong = [FAST[0] | {"chosen": 0}, FAST[1] | {"chosen": 1}]
    assert "in 0 of 1 networks. Dense is the fastest of them in 1, and" in summary(wrong)
    assert summary(wrong).endswith("the plan says so in 0 of these.")
    assert choice(wrong)["compressor"] == "sign()" and len(networks(SLOW + FAST)) == 2


def test_what_a_plan_may_not_choose_is_no_failure_of_its_choice():
    excluded = row("error_feedback(sign())", 5, 5, 0, excluded=1)
    (line,) = table([*FAST, excluded])
    assert line["fastest that is not excluded"] == "`dense()`"
    assert line["its ms"] == "20"
    assert "in 1 of 1 networks" in summary([*FAST, excluded])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": ("fast",)}, "rate"),
        ({"hosts": (1,)}, "hosts must be 2 to 250"),
        ({"workers": (1,)}, "workers must be at least 2"),
    ],
)
def test_invalid_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Options(**arguments)
