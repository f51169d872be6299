"""The plot of losses against bytes."""

from benchmarks.convergence.plot import plot


def test_a_run_that_is_not_finite_is_drawn_at_the_edge(tmp_path):
    rows = [
        {"task": task, "compressor": text, "loss": loss, "times_fewer": "10"}
        for task in ("one", "two")
        for text, loss in (
            ("dense()", "0.1"),
            ("error_feedback(top_k(0.01))", "nan"),
            ("switch(warmup(9), dense(), top_k(0.1))", "7.0"),
        )
    ]
    path = plot(rows, tmp_path / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")
