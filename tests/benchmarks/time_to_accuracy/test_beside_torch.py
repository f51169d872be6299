"""The fastest methods of both frameworks, and the steps of counterparts."""

from benchmarks.time_to_accuracy.beside_torch import fastest, steps
from benchmarks.time_to_accuracy.methods import METHODS, Method
from benchmarks.time_to_accuracy.table import row

TASK = "transformer 4M"


def method(label: str) -> Method:
    return next(each for each in METHODS if each.label == label)


def rows(label: str, *seconds: str, step: str = "0.1", **about) -> list[dict]:
    known = {"steps": "100", "compile_seconds": "10", "seconds_per_step": step, "commit": "abc"}
    return [
        row(TASK, method(label), "", 2, "100mbit", seed) | known | about | {"seconds": one}
        for seed, one in enumerate(seconds)
    ]


def test_quotients_are_medians_over_the_seeds_of_both():
    found = fastest(
        [
            *rows("dense()", "1", "1", "1"),  # dense in every step is not compared
            *rows("DDP, dense", "1", "1", "1"),
            *rows("error_feedback(power_sgd(4))", "10", "20", "30"),
            *rows("error_feedback(int4())", "50", "50", "50"),
            *rows("DDP, fp16 hook", "40", "60", compile_seconds="0"),
        ]
    )
    assert found == [
        {
            "task": TASK,
            "hosts": "2",
            "link": "100 Mbit/s",
            "fastest of jaxcompress": "`error_feedback(power_sgd(4))`",
            "jaxcompress s": "20",
            "fastest of PyTorch": "DDP, fp16 hook",
            "PyTorch s": "50",
            "PyTorch / jaxcompress": "3.50 (3.00–4.00)",  # 40/10 and 60/20
            "with compiling": "2.00 (2.00–2.00)",  # 40/20 and 60/30
        }
    ]


def test_a_period_has_a_second_line_of_averages_in_every_step():
    found = fastest(
        [
            *rows("error_feedback(int4()), once in 10 steps", "10"),
            *rows("error_feedback(power_sgd(4))", "20"),
            *rows("DDP, fp16 hook", "30"),
            *rows("PeriodicModelAverager, once in 10 steps", "40"),
        ]
    )
    assert [(line["fastest of jaxcompress"], line["PyTorch / jaxcompress"]) for line in found] == [
        ("`error_feedback(int4())`, once in 10 steps", "3.00"),
        ("`error_feedback(power_sgd(4))`", "1.50"),
    ]


def test_a_method_that_missed_the_target_is_not_the_fastest():
    found = fastest(
        [
            *rows("error_feedback(int4())", "1", ""),
            *rows("error_feedback(power_sgd(4))", "20", "20"),
            *rows("DDP, fp16 hook", "30", "30"),
        ]
    )
    assert [line["fastest of jaxcompress"] for line in found] == ["`error_feedback(power_sgd(4))`"]


def test_commits_are_not_compared():
    ours, theirs = rows("error_feedback(power_sgd(4))", "20"), rows("DDP, fp16 hook", "30")
    other = [each | {"commit": "def"} for each in theirs]
    assert fastest([*ours, *other]) == []
    dense = rows("dense()", "1"), rows("DDP, dense", "1", commit="def")
    assert steps([row for group in dense for row in group]) == []


def test_methods_without_a_seed_in_common_are_not_compared():
    theirs = [row | {"seed": 7} for row in rows("DDP, fp16 hook", "30")]
    assert fastest([*rows("error_feedback(power_sgd(4))", "20"), *theirs]) == []


def test_steps_are_divided_by_those_of_the_counterpart():
    of_four = [row | {"workers": 4} for row in rows("DDP, dense", "9", step="0.1")]
    found = steps(
        [
            *of_four,
            *rows("dense()", "9", "9", step="0.3"),
            *rows("DDP, dense", "9", "9", step="0.2"),
            *rows("error_feedback(power_sgd(4))", "9", step="0.1"),
        ]
    )
    assert found == [
        {
            "jaxcompress": "`dense()`",
            "PyTorch": "DDP, dense",
            "link": "100 Mbit/s",
            TASK: "1.50 (1.50–1.50)",
        }
    ]
