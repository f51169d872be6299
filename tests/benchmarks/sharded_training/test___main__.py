"""The table that compares compressed shards with compressed whole arrays."""

from benchmarks.sharded_training.__main__ import RUNS, table


def row(run: tuple[str, int], seed: int, loss: float) -> dict[str, str]:
    numbers = {"devices": run[1], "seed": seed, "test_loss": loss, "test_perplexity": 10 * loss}
    return {
        "compressor": run[0],
        "worker_bytes": "4000",
        **{name: str(value) for name, value in numbers.items()},
    }


def test_losses_are_compared_with_dense_of_the_same_seeds():
    rows = [row(RUNS[0], 0, 1.0), row(RUNS[0], 1, 2.0)]
    rows += [row(RUNS[2], 1, 2.5), row(RUNS[2], 0, 1.5), row(RUNS[3], 0, 1.25)]
    dense, shards, one_seed = table(rows)
    assert dense["test loss beyond dense"] == "+0.000 ± 0.000"
    assert shards["compresses"] == "shards on 4 devices"
    assert shards["test loss beyond dense"] == "+0.500 ± 0.000"
    assert shards["test perplexity"] == "20.00 ± 7.07"
    assert one_seed["test loss beyond dense"] == "+0.250"
