"""A compressor of the user's own module, from the config to the summary of a run."""

import dataclasses

from train_helpers import ALONE, REPOSITORY, finish, start, summary_of

from train.config import Config
from train.loop import train
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
    summary = summary_of(finish(start("own.yaml", "--workers", "8", folder=tmp_path)))
    same = "error_feedback(top_k(0.05, inner=cast('bfloat16')))"
    expected = train(Config(**ALONE, workers=8, epochs=0.2, compressor=same))
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
