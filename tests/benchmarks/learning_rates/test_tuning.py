"""The rule that chooses a learning rate, and that the configs use its choice."""

from pathlib import Path

import pytest

from benchmarks.learning_rates.__main__ import RESULTS
from benchmarks.learning_rates.tuning import TUNINGS, chosen, measured
from train.config import load_config

CONFIGS = Path(__file__).parents[3] / "configs"


def test_the_best_mean_is_chosen_where_it_stands_out():
    assert chosen({0.1: [0.60, 0.62], 0.2: [0.70, 0.72], 0.4: [0.65, 0.67]}) == 0.2
    assert chosen({0.1: [5.9, 5.8], 0.2: [5.5, 5.6], 0.4: [5.7, 5.6]}, least=True) == 0.2


@pytest.mark.parametrize("least", [False, True])
def test_a_difference_below_one_standard_error_of_the_best_gives_the_lower_rate(least):
    # The best mean is 0.71 with a standard error of 0.02 / √2 / √2 = 0.01; without noise in it any
    # difference counts.
    sign = -1 if least else 1
    noisy = {
        0.1: [sign * 0.7005] * 2,
        0.2: [sign * 0.70, sign * 0.72],
        0.4: [sign * 0.71, sign * 0.70],
    }
    assert chosen(noisy, least=least) == 0.1
    assert chosen(noisy | {0.1: [sign * 0.6995] * 2}, least=least) == 0.2
    assert chosen({0.1: [sign * 0.7], 0.2: [sign * 0.7001]}, least=least) == 0.2


@pytest.mark.parametrize("group", TUNINGS)
def test_all_configs_have_the_rate_that_was_best_for_dense(group):
    """It is one of those tried, and not the first or the last of them, beyond which a better one
    could be.
    """
    tuning, rows = TUNINGS[group], RESULTS.read()
    assert load_config([tuning.config]).compressor == "dense()"
    values = measured(rows, group)
    assert tuple(values) == tuning.rates
    best = chosen(values, least=tuning.measure == "test_perplexity")
    assert best in tuning.rates[1:-1]
    paths = CONFIGS.glob(Path(tuning.config).name.replace("dense", "*"))
    configs = [load_config([str(path)]) for path in sorted(paths)]
    siblings = [config for config in configs if config.optimizer in ("sgd", "dgc")]
    assert len(siblings) > 2
    assert {config.learning_rate for config in siblings} == {best}
