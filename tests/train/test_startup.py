"""A compressor of the user's own module, from the config to the summary of a run."""

import dataclasses

from train_helpers import REPOSITORY, finish, start, summary_of

from train.config import Config
from train.startup import saved_settings

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
    own = ("own.yaml",)
    same = ("--epochs", "0.2", "--compressor")
    same = (*same, "error_feedback(top_k(0.05, inner=cast('bfloat16')))")
    summary, expected = (
        summary_of(finish(start(*arguments, "--workers", "2", folder=tmp_path)))
        for arguments in (own, same)
    )
    text = "error_feedback(mine.largest(0.05, inner=cast('bfloat16')))"
    assert summary.pop("compressor") == text
    for name in ("test_loss", "bytes_per_step", "dense_bytes_per_step", "steps"):
        assert summary[name] == expected[name], name
    assert summary["bytes_per_step"] < summary["dense_bytes_per_step"]


def test_a_run_resumes_with_more_modules_that_its_compressor_may_name():
    config = Config(workers=2)
    more = dataclasses.replace(config, compressor_modules=("mine",))
    one, other = (saved_settings(each, "dense()", 2) for each in (config, more))
    assert one == other
