"""A compressor of the user's own module, from the config to the summary of a run."""

import dataclasses

import jax
import pytest
from train_helpers import ALONE, REPOSITORY, StopAfter, finish, start, summary_of

import jaxcompress
from train.config import Config
from train.loop import train
from train.signals import InterruptedRunError
from train.startup import has_choices, saved_settings

MINE = """
from jaxcompress import Compressor, dense, parseable, top_k


@parseable
def largest(density: float, inner: Compressor = dense()) -> Compressor:
    return top_k(density, inner=inner)
"""
CONFIG = """
compressor: error_feedback(mine.largest(0.05, inner=cast("bfloat16")))
compressor_modules: [mine]
epochs: 0.2
"""


def test_a_run_takes_a_compressor_from_a_module_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "own.yaml").write_text(CONFIG)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    summary = summary_of(finish(start("own.yaml", "--workers", "2", "--vmap", folder=tmp_path)))
    same = "error_feedback(top_k(0.05, inner=cast('bfloat16')))"
    expected = train(Config(**ALONE, workers=2, vmap=True, epochs=0.2, compressor=same))
    text = "error_feedback(mine.largest(0.05, inner=cast('bfloat16')))"
    assert summary.pop("compressor") == text
    for name in ("test_loss", "bytes_per_step", "dense_bytes_per_step", "steps"):
        assert summary[name] == expected[name], name
    assert summary["bytes_per_step"] < summary["dense_bytes_per_step"]


@pytest.mark.parametrize(
    ("compressor", "choices"),
    [
        ("switch(warmup(1), dense(), top_k(0.05))", True),
        ("error_feedback(dgc_warmup(0.05))", True),
        # Its program chooses between two factors in every second step, to the end.
        ("acp_sgd(2)", False),
        ("error_feedback(top_k(0.05))", False),
    ],
)
def test_a_compressor_with_choices_ends_with_its_last(compressor, choices):
    assert has_choices(Config(), jaxcompress.parse(compressor)) is choices


def test_a_resumed_run_names_the_settings_of_jax_that_have_changed(tmp_path, capsys):
    run = Config(**ALONE, workdir=str(tmp_path), workers=8, epochs=0.2)
    with pytest.raises(InterruptedRunError):
        train(run, StopAfter(1))
    assert "numbers may differ" not in capsys.readouterr().err
    before = jax.config.jax_default_matmul_precision
    try:
        jax.config.update("jax_default_matmul_precision", "float32")
        train(run)
        train(run)  # which has finished
    finally:
        jax.config.update("jax_default_matmul_precision", before)
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "numbers may" in each]
    assert line == (
        "numbers may differ slightly after resuming: jax_default_matmul_precision was None and is"
        " 'float32'"
    )


def test_a_run_resumes_with_more_modules_that_its_compressor_may_name():
    config = Config(workers=2)
    more = dataclasses.replace(config, compressor_modules=("mine",))
    one, other = (saved_settings(each, "dense()", 2) for each in (config, more))
    assert one == other
