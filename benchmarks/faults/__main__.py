"""What do faults of processes, links, disks and memories cost a run?

    sudo .venv/bin/python -m benchmarks.faults                       every scenario: 50 minutes
    sudo .venv/bin/python -m benchmarks.faults --only killed_1       some; other rows stay
    python -m benchmarks.faults --no-measure                         the table of the file

A scenario is a real run of `python -m train` (digits, two or three processes of this machine over
gloo), to which a fault happens. It fails unless the run keeps its promise. Without root those of
disks and links are left out. The columns:

- `seconds`: from the fault until the last process had ended.
- `steps_lost`: steps that process 0 had reported, and that no checkpoint has.
"""

import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.faults import cut_links, disks, joins, lost_processes, soak
from benchmarks.faults.scenario import BrokenPromiseError, Scenario
from benchmarks.hosts.namespaces import missing

PAGE = REPOSITORY / "docs" / "reliability.md"
SCENARIOS: dict[str, Scenario] = {
    **lost_processes.SCENARIOS,
    **cut_links.SCENARIOS,
    **disks.SCENARIOS,
    **joins.SCENARIOS,
}
RESULTS = Results(
    "faults.csv", ("scenario",), lambda row: (position(list(SCENARIOS), row["scenario"]),)
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which scenarios."""

    only: tuple[str, ...] = tuple(SCENARIOS)
    measure: bool = True

    def __post_init__(self) -> None:
        """ValueError for a scenario that does not exist."""
        if unknown := set(self.only) - SCENARIOS.keys():
            raise ValueError(f"no scenario {sorted(unknown)}; there are {', '.join(SCENARIOS)}.")


def main(options: Options) -> int:
    """Runs the scenarios one after the other, and saves after each; 1 if a promise was broken."""
    broken = []
    for name in options.only if options.measure else ():
        if SCENARIOS[name].needs_root and missing():
            print(f"{name} is left out: it needs {'; and '.join(missing())}", file=sys.stderr)
            continue
        try:
            RESULTS.save([measure(name)])
        except (BrokenPromiseError, RuntimeError, subprocess.CalledProcessError) as error:
            broken.append(name)
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            # An earlier success would hide it.
            RESULTS.drop({"scenario": name})
    if rows := RESULTS.read():
        text = "\n\n".join([markdown(table(rows)), *map(soak.sentence, soak.RESULTS.read())])
        print(text)
        write_between(PAGE, "faults", text)
    return int(bool(broken))


def measure(name: str) -> Row:
    """One row: what one scenario has led to."""
    scenario = SCENARIOS[name]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        found = scenario.run(Path(folder))
    print(name, found, flush=True)
    command = f"python -m benchmarks.faults --only '{name}'"
    return environment() | {
        "scenario": name,
        "fault": scenario.fault,
        "wanted": scenario.wanted,
        "happened": found.happened,
        "seconds": "" if found.seconds is None else round(found.seconds, 1),
        "steps_lost": "" if found.steps_lost is None else found.steps_lost,
        "command": command,
    }


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """One line for each scenario."""
    return [
        {
            "fault": row["fault"],
            "promise": row["wanted"],
            "what happened": row["happened"],
            "seconds": row["seconds"],
            "steps lost": row["steps_lost"],
        }
        for row in rows
    ]


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
