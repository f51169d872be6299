"""The plot is drawn from one seed and from several."""

import pytest

from benchmarks.training.plot import plot


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_panel_for_each_data_set(seeds, tmp_path):
    rows = [
        {"group": group, "config": f"{group}.yaml", "compressor": text, "bytes_per_step": str(size)}
        | {"test_accuracy": str(0.9 + 0.01 * seed), "test_perplexity": str(5 + seed)}
        for group in ("digits", "mnist", "dgc", "lstm")
        for text, size in (("dense()", 1000), ("error_feedback(top_k(0.01))", 30))
        for seed in range(seeds)
    ]
    assert plot(rows, tmp_path / "a.png").stat().st_size > 1000
