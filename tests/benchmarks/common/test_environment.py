"""What is recorded with a measurement, and that every committed row has it."""

import csv

import pytest

from benchmarks.common.environment import REPOSITORY, command, environment
from benchmarks.common.results import FOLDER

FILES = sorted(FOLDER.glob("*.csv"))
# Computed from the rows of other files, whose commits they name instead of a machine.
DERIVED = {"scaling.csv", "scaling_checks.csv", "scaling_errors.csv"}

# Some of their rows are of a tree with changes that were not committed; docs/benchmarks.md says so.
NOT_COMMITTED = {
    "distortion.csv",
    "scheme_survey.csv",
    *(f"gpu_{name}.csv" for name in ("agreement", "steps", "training")),
}


def test_the_command_quotes_its_arguments_and_names_no_place_of_this_machine():
    program = str(REPOSITORY / "benchmarks" / "time_to_accuracy" / "__main__.py")
    arguments = ["--task", "transformer 4M", "--torch-python", "/somewhere/bin/python"]
    assert command([program, *arguments]) == (
        "python -m benchmarks.time_to_accuracy --task 'transformer 4M'"
        " --torch-python PATH/bin/python"
    )


def test_modules_and_programs_from_elsewhere_are_named():
    worker = str(REPOSITORY / "benchmarks" / "network" / "jax_worker.py")
    assert command([worker, "0"]) == "python -m benchmarks.network.jax_worker 0"
    assert command(["/usr/bin/pytest", "-q"]) == "pytest -q"


def test_the_environment_says_what_repeats_a_measurement():
    assert all(environment()[key] for key in ("machine", "device", "python", "jax", "commit"))
    assert environment()["command"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_row_says_what_repeats_it(path):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    needed = {"command", "commit"} | (
        {"collectives_commit", "local_commit"} if path.name in DERIVED else {"machine"}
    )
    assert rows
    for number, row in enumerate(rows):
        assert all(row.get(key) for key in needed), f"row {number} of {path.name}"
        assert row.get("jax") or row.get("version"), f"row {number} of {path.name}"
        assert row["command"].startswith("python -m ")
        assert not row["commit"].endswith("-dirty") or path.name in NOT_COMMITTED
