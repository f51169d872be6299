"""What is recorded keeps the law, and both files are written."""

import itertools

import numpy as np
from PIL import Image

from benchmarks.error_feedback_steps import __main__ as benchmark
from benchmarks.error_feedback_steps.__main__ import recorded
from benchmarks.error_feedback_steps.plot import sums


def test_what_was_sent_and_the_memory_add_up_to_the_gradients():
    updates = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
    steps = recorded(benchmark.COMPRESSOR, updates)
    assert [np.count_nonzero(step.sent) for step in steps] == [2] * 6
    gradients, sent = sums(steps)
    assert len(gradients) == len(sent) == len(steps)
    for step, total, arrived in zip(steps[1:], gradients[:-1], sent[:-1], strict=True):
        np.testing.assert_allclose(arrived + step.memory, total, rtol=1e-5, atol=1e-6)
    assert not steps[0].memory.any()


def test_both_files_are_written(tmp_path, monkeypatch):
    updates = np.random.default_rng(0).standard_normal((benchmark.STEPS, 16)).astype(np.float32)
    monkeypatch.setattr(benchmark, "FOLDER", tmp_path)
    monkeypatch.setattr(benchmark, "gradients", lambda: iter(updates[:3]))
    benchmark.main()
    with Image.open(tmp_path / "error_feedback_steps.gif") as animation:
        assert animation.n_frames >= 3
    assert (tmp_path / "error_feedback_steps.png").read_bytes().startswith(b"\x89PNG")


def test_the_gradients_are_those_of_a_bias():
    (first,) = itertools.islice(benchmark.gradients(), 1)
    assert first.shape == (16,)
    assert np.abs(first).max() > 0
