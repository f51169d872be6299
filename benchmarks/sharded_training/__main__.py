"""Does it cost accuracy to compress each device's shard instead of whole arrays?

    python -m benchmarks.sharded_training                 all runs with three seeds: an hour
    python -m benchmarks.sharded_training --no-measure    the table of the file

The transformer of configs/shakespeare_transformer_dense.yaml is trained for two epochs by two
workers: as one whole model, and split over four devices of each worker (`--fsdp 4`), which compress
their shards. Both send about the same number of bytes: PowerSGD has rank 6 on whole arrays and rank
2 on shards, since each of four shards has two factors of its own. Both start from the same
parameters, and see the same batches for the same seed. All other settings are the config's. Its
learning rate was chosen for six epochs of dense training with four workers.

Without compression both are the same training, so `dense()` runs only on the whole model
(tests/train/test_sharding.py compares the losses). The columns:

- `devices`: of one worker; 1 is the whole model.
- `worker_bytes`: what all devices of a worker send to other workers per step, together.
- `test_perplexity`, `test_loss`: after the last step.
"""

import dataclasses
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import (
    REPOSITORY,
    markdown,
    paired_difference,
    spread,
    write_between,
)
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_run import summary

PAGE = REPOSITORY / "docs" / "sharding.md"
CONFIG = "configs/shakespeare_transformer_dense.yaml"
SETTINGS = ["--epochs", "2", "--workers", "2"]
# (compressor, devices of a worker)
RUNS = [
    ("dense()", 1),
    ("error_feedback(power_sgd(6))", 1),
    ("error_feedback(power_sgd(2))", 4),
    ("error_feedback(top_k(0.01))", 1),
    ("error_feedback(top_k(0.01))", 4),
    ("error_feedback(sign())", 1),
    ("error_feedback(sign())", 4),
]


def _order(row: Row) -> tuple[int, int]:
    return position(RUNS, (row["compressor"], int(row["devices"]))), int(row["seed"])


RESULTS = Results("sharded_training.csv", ("compressor", "devices", "seed"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which runs."""

    seeds: tuple[int, ...] = (0, 1, 2)  # one run each
    measure: bool = True


def main(options: Options) -> None:
    """Runs one after the other and saves after each; what this commit has measured is kept."""
    about = environment()
    for compressor, devices in RUNS if options.measure else ():
        for seed in options.seeds:
            run = {"compressor": compressor, "devices": devices, "seed": seed}
            if RESULTS.measured(run, about["commit"]):
                continue
            RESULTS.save([about | measure(run)])
    if rows := RESULTS.read():
        text = markdown(table(rows))
        print(text)
        write_between(PAGE, "sharded_training", text)


def measure(run: Row) -> Row:
    """One row: what `run` scores and sends."""
    arguments = ["--compressor", run["compressor"], "--fsdp", str(run["devices"])]
    found = summary([CONFIG, *SETTINGS, *arguments, "--seed", str(run["seed"])])
    sent = found["bytes_per_step"] * run["devices"]
    row = run | {"worker_bytes": sent} | {name: found[name] for name in COPIED}
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


COPIED = ("test_perplexity", "test_loss", "train_loss", "steps", "command")


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """One line for each compressor and number of devices: means over seeds, and the mean difference
    to the loss of `dense()` with the same seeds.
    """
    lines, dense = [], _losses(rows, *RUNS[0])
    for compressor, devices in RUNS:
        losses = _losses(rows, compressor, devices)
        if not losses:
            continue
        first = next(row for row in rows if _key(row) == (compressor, devices))
        scores = [float(row["test_perplexity"]) for row in rows if _key(row) == _key(first)]
        lines.append(
            {
                "compressor": f"`{compressor}`",
                "compresses": "whole arrays" if devices == 1 else f"shards on {devices} devices",
                "bytes sent by a worker": f"{int(first['worker_bytes']):,}",
                "test perplexity": spread(scores, 2),
                "test loss beyond dense": paired_difference(losses, dense, 3),
            }
        )
    return lines


def _key(row: Row) -> tuple[str, int]:
    return row["compressor"], int(row["devices"])


def _losses(rows: list[Row], compressor: str, devices: int) -> dict[str, float]:
    """Test loss of each seed."""
    found = [row for row in rows if _key(row) == (compressor, devices)]
    return {str(row["seed"]): float(row["test_loss"]) for row in found}


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
