"""Does a run end as if nothing had happened, when a fault happens again and again?

    python -m benchmarks.faults.soak                  two processes, 30 minutes, a fault a minute
    python -m benchmarks.faults.soak --minutes 5 --every 15

Faults are drawn with a seed: SIGKILL of one process or both, SIGTERM, SIGSTOP for some seconds.
After each the same command is given again, if the run has ended. When the time is over, the run is
trained to the same step without faults, and the arrays are compared. The memory of that second run
early and at its end shows whether it grows.
"""

import dataclasses
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import tyro

from benchmarks.common.environment import environment
from benchmarks.common.results import Results, Row
from benchmarks.faults.cluster import Cluster
from benchmarks.faults.saved import differing_arrays
from benchmarks.faults.scenario import require
from train.checkpoint import newest_complete_step

KEY = ("minutes", "every", "seed")
RESULTS = Results("faults_soak.csv", KEY, lambda row: tuple(float(row[name]) for name in KEY))
SAVE_EVERY = 100
OPTIONS = ("--epochs", "100000", "--checkpoint-every-steps", str(SAVE_EVERY))
OPTIONS += ("--step-timeout", "30")
FAULTS = ("SIGKILL of one", "SIGKILL of both", "SIGTERM to one", "SIGSTOP of one for 5 s")


@dataclasses.dataclass(frozen=True)
class Options:
    """How long, and how often."""

    minutes: float = 30.0
    every: float = 60.0  # seconds between two faults
    seed: int = 0

    def __post_init__(self) -> None:
        """ValueError unless there is time for a fault."""
        if not 0 < self.every <= 20 * self.minutes:
            raise ValueError(
                "every is the seconds between two faults, at most a third of the run; got"
                f" {self.every} s, and {self.minutes} minutes."
            )


def main(options: Options) -> int:
    """Trains under faults, and then without; saves one row."""
    draw, counts = random.Random(options.seed), dict.fromkeys(FAULTS, 0)
    memory: list[int] = []
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        faulty, calm = Path(folder) / "faulty", Path(folder) / "calm"
        for path in (faulty, calm):
            path.mkdir()
        while time.monotonic() < until:
            with Cluster(faulty, *OPTIONS) as cluster:
                cluster.wait_for_step((newest_complete_step(faulty / "run/checkpoints") or 0) + 5)
                ended = False
                while not ended and time.monotonic() < until:
                    time.sleep(options.every * draw.uniform(0.5, 1.5))
                    memory.append(cluster.resident_bytes())
                    fault = draw.choice(FAULTS)
                    counts[fault] += 1
                    ended = cause(cluster, fault, draw)
        # SIGTERM saves at any step, and a run without faults at multiples only.
        saved = [int(path.parent.name) for path in faulty.glob("run/checkpoints/*/sha256.json")]
        step = max(step for step in saved if step % SAVE_EVERY == 0)
        with Cluster(calm, *OPTIONS, "--keep-checkpoints", "100000") as cluster:
            tenth = max(step // 10 // SAVE_EVERY, 1) * SAVE_EVERY
            cluster.wait_for_checkpoint(tenth, 60 * options.minutes)
            early = cluster.resident_bytes()
            cluster.wait_for_checkpoint(step, 60 * options.minutes)
            late = cluster.resident_bytes()
        differing = differing_arrays(faulty / "run", calm / "run", step)
    require(not differing, f"other bits than in the run without a fault: {differing}")
    row = environment() | {
        "minutes": options.minutes,
        "every": options.every,
        "seed": options.seed,
        "faults": f"{sum(counts.values())} faults",
        "kinds": ", ".join(f"{count} times {name}" for name, count in counts.items()),
        "steps": step,
        "differing_arrays": len(differing),
        "largest_megabytes": round(max(memory) / 1e6),
        "calm_early_megabytes": round(early / 1e6),
        "calm_late_megabytes": round(late / 1e6),
        "command": f"python -m benchmarks.faults.soak --minutes {options.minutes:g}"
        f" --every {options.every:g} --seed {options.seed}",
    }
    RESULTS.save([row])
    print(sentence(row))
    return 0


def sentence(row: Row) -> str:
    """A row in words."""
    saves = 0.9 * int(row["steps"]) / SAVE_EVERY
    grown = int(row["calm_late_megabytes"]) - int(row["calm_early_megabytes"])
    return (
        f"A run of {row['steps']} steps and {row['minutes']} minutes, with {row['faults']}"
        f" ({row['kinds']}), ended with the same bits as one without. Process 0 took at most"
        f" {row['largest_megabytes']} MB before a fault; without faults"
        f" {row['calm_early_megabytes']} MB after a tenth of the steps, and"
        f" {row['calm_late_megabytes']} MB at the end: {1000 * grown / saves:.0f} KB more"
        f" for each checkpoint (`{row['command']}`)."
    )


def cause(cluster: Cluster, fault: str, draw: random.Random) -> bool:
    """Causes a fault, and waits until the run has ended, if it must; whether it has."""
    victim = [draw.randrange(2)]
    if fault == "SIGSTOP of one for 5 s":
        cluster.signal(signal.SIGSTOP, victim)
        time.sleep(5.0)
        cluster.signal(signal.SIGCONT, victim)
        return False
    number = signal.SIGTERM if fault == "SIGTERM to one" else signal.SIGKILL
    cluster.signal(number, [0, 1] if fault == "SIGKILL of both" else victim)
    ended = cluster.wait(60.0)
    said = "\n".join(f"process {rank}: {cluster.last_line(rank)}" for rank in range(2))
    require(len(ended) == 2, f"60 s after {fault} only {sorted(ended)} had ended:\n{said}")
    return True


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
