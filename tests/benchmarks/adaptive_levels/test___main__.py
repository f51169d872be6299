"""The table and the commands of runs with levels that adapt."""

import pytest

import jaxcompress
from benchmarks.adaptive_levels.__main__ import KINDS, Options, table
from benchmarks.adaptive_levels.runs import TASKS, Run, runs
from train.config import load_config
from train.config_rules import check_config


def row(rule: str, seed: int, score: float, sent: float) -> dict[str, str]:
    run = Run("transformer", rule, seed)
    values = run._asdict() | {"score": score, "bytes_per_step": sent}
    return {name: str(value) for name, value in values.items()}


def test_scores_are_compared_with_those_of_the_weak_level_and_the_same_seeds():
    rows = [row("weak", seed, 2.0 + seed, 400.0) for seed in (0, 1)]
    rows += [row("gain(0.5)", seed, 2.5 + 1.5 * seed, 100.0 + 200 * seed) for seed in (0, 1)]
    weak, adaptive = table(rows)
    assert (weak["level"], weak["beyond weak"]) == ("`power_sgd(4)`", "+0.0000 ± 0.0000")
    assert (adaptive["level"], adaptive["times fewer than weak"]) == ("`gain(0.5)`", "2.00")
    assert adaptive["beyond weak"] == "+0.7500 ± 0.2500"
    assert (adaptive["bytes a step"], adaptive["seeds"]) == ("200", 2)


@pytest.mark.parametrize("task", TASKS)
def test_every_run_is_a_valid_config_and_has_a_compressor(task):
    found = runs(task, 1)
    assert list(dict.fromkeys(run.rule.split("(")[0] for run in found)) == list(KINDS)
    for run in found:
        config = load_config(run.arguments())
        check_config(config)
        assert (config.seed, config.workers, config.evaluate_on) == (1, 4, "validation")
        assert jaxcompress.unparse(jaxcompress.parse(config.compressor)) == run.compressor()


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match=r"task must be one of .*; got 'none'"):
        Options(task=("none",))
