"""The plot of the curves."""

from benchmarks.memories.plot import plot


def test_every_figure_has_a_panel_and_a_run_that_diverges_is_drawn(tmp_path):
    rows = [
        {"figure": figure, "label": label, "step": str(step), "loss": loss}
        for figure in ("memory", "bad step", "rate")
        for label in ("one", "two")
        for step, loss in ((20, "1.0"), (40, "nan" if label == "two" else "0.5"))
    ]
    path = plot(rows, tmp_path / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")
