"""The table and the commands of runs with periods."""

from benchmarks.period_lengths.__main__ import KEY, Options, chosen, losses_by_period, table
from benchmarks.period_lengths.plot import plot
from benchmarks.period_lengths.runs import CHOICE_SEED, COMPRESSORS, PERIODS, Run
from train.config import load_config
from train.config_rules import check_config


def row(run: Run, loss: float) -> dict[str, str]:
    size = str(4000 / (run.period or 1))
    return run.row() | {"bytes_per_step": size, "validation_loss": str(loss)}


EVERY_STEP = [row(Run(4, None, "dense()", seed), 1.0 + seed) for seed in (0, 1)]
LOCAL = [row(Run(4, 10, "dense()", seed), 1.5 + 1.5 * seed) for seed in (0, 1)]
COMPRESSED = [row(Run(4, 10, COMPRESSORS[2], 1), 2.25)]


def test_losses_are_compared_with_those_of_the_same_seeds():
    every, local, compressed = table(EVERY_STEP + LOCAL + COMPRESSED)
    assert every["beyond gradients in every step"] == "+0.000 ± 0.000"
    assert (local["period"], local["bytes a step"]) == ("10", "400")
    assert local["beyond gradients in every step"] == "+0.750 ± 0.250"
    assert compressed["beyond gradients in every step"] == "+0.250"
    assert (compressed["outer"], compressed["seeds"]) == ("sgd 1.0", 1)


def test_the_page_has_a_line_for_each_period_and_a_column_for_each_compressor():
    every, local = losses_by_period(EVERY_STEP + LOCAL + COMPRESSED)
    assert every["period"] == "none: gradients in every step"
    assert every["`dense()`"] == "1.500 ± 0.707"
    assert (local["period"], local[f"`{COMPRESSORS[2]}`"]) == ("10", "2.250")
    assert local[f"`{COMPRESSORS[1]}`"] == ""


def test_every_run_is_a_valid_config_and_has_a_row_of_its_own():
    compared = chosen(Options())
    assert len(compared) == 3 * 2 * (1 + len(PERIODS) * len(COMPRESSORS))
    choices = chosen(Options(choose=True))
    rows = [tuple(run.row()[name] for name in KEY) for run in compared + choices]
    assert len(set(rows)) == len(rows)
    for run in compared + choices:
        config = load_config(run.arguments())
        check_config(config)
        assert (config.workers, config.period, config.seed) == (run.workers, run.period, run.seed)
        assert config.evaluate_on == "validation"
        assert (run.seed == CHOICE_SEED) == (run in choices)


def test_the_plot_is_drawn(tmp_path):
    rows = EVERY_STEP + LOCAL + COMPRESSED + [row(Run(8, 30, "dense()", 0), 1.0)]
    assert plot(rows, tmp_path / "one.png").stat().st_size > 10_000
