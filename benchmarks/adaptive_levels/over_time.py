"""The level at every fiftieth of a run, for each rule: a file and a picture."""

import json
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.adaptive_levels.runs import TASKS, Run, runs
from benchmarks.common import results
from benchmarks.common.plotting import save
from benchmarks.common.results import Results, Row, position
from benchmarks.common.training_run import summary

PARTS = 50
RESULTS = Results(
    "adaptive_levels_over_time.csv",
    ("task", "rule"),
    lambda row: (position(list(TASKS), row["task"]), row["rule"], int(row["step"])),
)


def measure(task: str, seed: int, about: Row) -> None:
    """Trains with each rule, and saves its levels."""
    for run in runs(task, seed):
        if run.rule not in ("dense", "weak", "middle", "strong"):
            RESULTS.save([row | about for row in levels_of(run)])


def levels_of(run: Run) -> list[Row]:
    """A row for every fiftieth of a run."""
    every = TASKS[run.task].steps // PARTS
    with tempfile.TemporaryDirectory() as folder:
        more = ("--workdir", folder, "--log-every-steps", str(every))
        summary([*run.arguments(), *more])
        lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {
            "task": run.task,
            "rule": run.rule,
            "seed": run.seed,
            "step": line["step"],
            "level": line["level"],
            "train_loss": f"{line['train_loss']:.4f}",
            "learning_rate": f"{line['learning_rate']:.5f}",
        }
        for line in map(json.loads, lines)
        if "level" in line
    ]


def draw() -> Path:
    """Dark where the strong level was taken, and the loss below."""
    rows = RESULTS.read()
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure = Figure(figsize=(5.5 * len(tasks), 5), layout="constrained")
    panels = figure.subplots(2, len(tasks), sharex="col", squeeze=False)
    for column, task in enumerate(tasks):
        levels, loss = panels[0][column], panels[1][column]
        rules = list(dict.fromkeys(row["rule"] for row in rows if row["task"] == task))
        for place, rule in enumerate(rules):
            mine = [row for row in rows if (row["task"], row["rule"]) == (task, rule)]
            steps = [int(row["step"]) for row in mine]
            strong = [place + 0.8 * float(row["level"]) for row in mine]
            levels.fill_between(steps, place, strong, step="pre", color="#1f77b4")
            loss.plot(steps, [float(row["train_loss"]) for row in mine], label=rule, linewidth=1)
        levels.set_yticks([place + 0.4 for place in range(len(rules))], rules, fontsize=8)
        levels.set_title(f"{task}: filled where the level is the strong one", fontsize=10)
        loss.set_ylabel("training loss")
        loss.set_yscale("log")
        loss.set_xlabel("step")
        loss.legend(fontsize=7)
    return save(figure, results.FOLDER / "adaptive_levels_over_time.png")
