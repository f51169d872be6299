"""How many bytes do levels that adapt save, and at which score?

    python -m benchmarks.adaptive_levels                     three tasks, three seeds: 2 hours
    python -m benchmarks.adaptive_levels --task transformer  some tasks; other rows stay
    python -m benchmarks.adaptive_levels --seeds 100         the seed with which rules were set
    python -m benchmarks.adaptive_levels --no-measure        the table of the file
    python -m benchmarks.adaptive_levels --over-time         the levels of one seed, drawn

Four workers train a model whose compressor has a weak and a strong level: alone, and under each
rule of `jaxcompress.adaptive`. Beside them are a level between the two, which sends about as many
bytes as `accordion`, and a schedule with as many weak steps. All runs of a seed start from the same
parameters and see the same batches. Scores are of the validation split. The workers share one
device, since this is about scores; bytes are counted as if they did not. A run that is in the file,
made at this commit, is not repeated. The columns:

- `score`: `test_accuracy` of images, `test_loss` of text, both of the validation split.
- `bytes_per_step`: what a worker sends, averaged over the run, by the levels that it took.
"""

import dataclasses
import statistics
from typing import Any

import tyro

from benchmarks.adaptive_levels import over_time
from benchmarks.adaptive_levels.runs import CHOICE_SEED, TASKS, Run, runs
from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, paired_difference, spread, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_run import summary

PAGE = REPOSITORY / "docs/adaptive.md"
KINDS = (
    "dense",
    "weak",
    "middle",
    "accordion",
    "gradient_norm",
    "gain",
    "accuracy",
    "schedule",
    "strong",
)


def _order(row: Row) -> tuple:
    kind = position(KINDS, str(row["rule"]).split("(")[0])
    return position(list(TASKS), row["task"]), kind, row["rule"], int(row["seed"])


RESULTS = Results("adaptive_levels.csv", ("task", "rule", "seed"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which runs."""

    measure: bool = True
    task: tuple[str, ...] = tuple(TASKS)
    seeds: tuple[int, ...] = (0, 1, 2)
    over_time: bool = False  # the levels of the first seed, into adaptive_levels_over_time.csv

    def __post_init__(self) -> None:
        """ValueError for an unknown task."""
        if unknown := [one for one in self.task if one not in TASKS]:
            raise ValueError(f"task must be one of {', '.join(TASKS)}; got {unknown[0]!r}.")


def main(options: Options) -> None:
    """Runs one after the other, a seed after the other, saving after each."""
    about = environment()
    if options.over_time:
        for task in options.task if options.measure else ():
            over_time.measure(task, options.seeds[0], about)
        print(over_time.draw())
        return
    for seed in options.seeds if options.measure else ():
        for task in options.task:
            for run in runs(task, seed):
                if not RESULTS.measured(run._asdict(), about["commit"]):
                    RESULTS.save([about | measure(run)])
    if compared := [row for row in RESULTS.read() if int(row["seed"]) != CHOICE_SEED]:
        text = markdown(table(compared))
        print(text)
        write_between(PAGE, "adaptive_levels", text)


def measure(run: Run) -> Row:
    """One row: what `run` scores and sends."""
    found = summary(run.arguments())
    row = run._asdict() | {
        "compressor": run.compressor(),
        "score": found[TASKS[run.task].score],
        "bytes_per_step": found["mean_bytes_per_step"],
        "dense_bytes_per_step": found["dense_bytes_per_step"],
        "steps": found["steps"],
        "command": found["command"],
    }
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """One line for each task and rule: means over seeds, and the difference to the weak level."""
    lines = []
    for task, rule in dict.fromkeys((row["task"], row["rule"]) for row in rows):
        scores, weak_scores = (_of(rows, task, each, "score") for each in (rule, "weak"))
        sent, weak_sent = (
            _mean(_of(rows, task, each, "bytes_per_step")) for each in (rule, "weak")
        )
        lines.append(
            {
                "task": task,
                "level": f"`{_level(task, rule)}`",
                "bytes a step": f"{sent:,.0f}",
                "times fewer than weak": f"{weak_sent / sent:.2f}" if weak_sent else "",
                "accuracy, or loss of the transformer": spread(list(scores.values()), 4),
                "beyond weak": paired_difference(scores, weak_scores, 4),
                "seeds": len(scores),
            }
        )
    return lines


def _level(task: str, rule: str) -> str:
    if rule == "dense":
        return "dense()"
    return getattr(TASKS[task], rule) if rule in ("weak", "middle", "strong") else rule


def _of(rows: list[Row], task: str, rule: str, column: str) -> dict[str, float]:
    """A column of the row of each seed."""
    return {
        row["seed"]: float(row[column])
        for row in rows
        if (row["task"], row["rule"]) == (task, rule)
    }


def _mean(of_seeds: dict[str, float]) -> float | None:
    """None without a seed."""
    return statistics.fmean(of_seeds.values()) if of_seeds else None


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
