"""One training run over a shaped network, and the check that both frameworks train the same."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.common.results import Row
from benchmarks.hosts.host_processes import TUNED, HostProcesses, Settings
from benchmarks.hosts.namespaces import FULL_SPEED, Network, bits_per_second
from benchmarks.time_to_accuracy.ddp import fastest
from benchmarks.time_to_accuracy.methods import DENSE, METHODS, Method, expression
from benchmarks.time_to_accuracy.specification import PART_STEPS, Specification
from benchmarks.time_to_accuracy.table import row
from benchmarks.time_to_accuracy.tasks import TASKS

LARGEST_DIFFERENCE = 1e-3  # of the dense losses in both frameworks
# The runs that are timed again at the lowest rate, from the first step to the last.
CHECKED_SEED = 0
CHECKED = ("DDP, dense", "DDP, PowerSGD hook, rank 4", "error_feedback(int4())")


def run(
    task: str, method: Method, seed: int, hosts: Network, rates: Sequence[str], python: str
) -> list[Row]:
    """Trains until the target is reached; a row per rate.

    The links change their rate during training: of the steps between two validations, those of
    `shares` run at each rate, and stand for all. The first `PART_STEPS` of the run, which may take
    longer, stand for themselves alone.
    """
    wanted, lowest = TASKS[task], min(rates, key=bits_per_second)
    curves: dict[str, list[tuple[int, float, float, float]]] = {rate: [] for rate in rates}
    again = ""
    hosts.shape(FULL_SPEED)
    specification = Specification(task, method, seed, fastest(task, method.name))
    with processes_of(specification, hosts, python) as processes:
        about = processes.ready()
        spent = first_steps(processes, hosts, rates)
        for steps in range(wanted.check_every, wanted.most_steps + 1, wanted.check_every):
            found = {
                rate: timed(processes, hosts, rate, share)
                for rate, share in shares(rates, wanted.check_every).items()
            }
            loss = processes.measure("validation", 0, 1).result["loss"]
            for rate, (step_seconds, step_bytes) in found.items():
                seconds, sent = spent[rate]
                seconds += wanted.check_every * step_seconds
                sent += wanted.check_every * step_bytes
                spent[rate] = seconds, sent
                curves[rate].append((PART_STEPS + steps, seconds, sent / 1e6, loss))
            # A run that diverges does not come back.
            if loss <= wanted.target or not loss < 10:
                break
        test = processes.measure("test", 0, 1).result
        if len(rates) > 1 and seed == CHECKED_SEED and method.label in CHECKED:
            again = f"{timed_again(processes, hosts, lowest, PART_STEPS + steps):.2f}"
    name = expression(method, wanted)
    rows = []
    for rate, curve in curves.items():
        found_row = row(task, method, name, len(hosts.hosts), rate, seed)
        found_row |= results(curve, wanted.target, test, about)
        found_row["again_seconds"] = again if rate == lowest else ""
        print(", ".join(f"{key} {value}" for key, value in list(found_row.items())[:11]))
        rows.append(found_row)
    return rows


def first_steps(
    processes: HostProcesses, hosts: Network, rates: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Trains the first `PART_STEPS`: their seconds at each rate, and the bytes that a host sends.

    They run at the highest rate. At a lower rate, sending their bytes takes longer by
    ``8 bytes (1 / lower - 1 / highest)``.
    """
    highest = max(rates, key=bits_per_second)
    step_seconds, step_bytes = timed(processes, hosts, highest, PART_STEPS)
    seconds, sent = PART_STEPS * step_seconds, PART_STEPS * step_bytes
    return {
        rate: (
            seconds + 8 * sent * (1 / bits_per_second(rate) - 1 / bits_per_second(highest)),
            sent,
        )
        for rate in rates
    }


def timed_again(processes: HostProcesses, hosts: Network, rate: str, steps: int) -> float:
    """Trains on for `steps` at one rate: seconds. A request for all of them would time out."""
    parts = [timed(processes, hosts, rate, PART_STEPS)[0] for _ in range(0, steps, PART_STEPS)]
    return PART_STEPS * sum(parts)


def shares(rates: Sequence[str], steps: int) -> dict[str, int]:
    """The steps at each rate, of `steps`: one part at each, and the rest at the highest."""
    highest, *lower = sorted(rates, key=bits_per_second, reverse=True)
    return {highest: steps - PART_STEPS * len(lower)} | dict.fromkeys(lower, PART_STEPS)


def timed(processes: HostProcesses, hosts: Network, rate: str, steps: int) -> tuple[float, float]:
    """Trains `steps` at one rate: seconds, and bytes that a host sends, per step."""
    hosts.shape(rate)
    trained = processes.measure("train", 0, steps // PART_STEPS)
    return sum(trained.ms) / 1e3 / steps, trained.sent_bytes / PART_STEPS


def results(
    curve: list[tuple[int, float, float, float]],
    target: float,
    test: dict[str, float],
    about: dict[str, Any],
) -> Row:
    """The columns of a finished run."""
    steps, seconds, megabytes, loss = curve[-1]
    reached = loss <= target
    return {
        "target": target,
        "seconds": f"{seconds:.2f}" if reached else "",
        "steps": steps if reached else "",
        "megabytes": f"{megabytes:.2f}" if reached else "",
        "validation_loss": f"{loss:.4f}",
        "test_loss": f"{test['loss']:.4f}",
        "test_accuracy": f"{test['accuracy']:.4f}",
        "seconds_per_step": f"{seconds / steps:.4f}",
        "megabytes_per_step": f"{megabytes / steps:.4f}",
        "parameters": about["parameters"],
        "compile_seconds": f"{about['compile_seconds']:.1f}",
        "version": about["version"],
        "python": about["python"],
        "curve": " ".join(f"{a}:{b:.2f}:{c:.2f}:{d:.4f}" for a, b, c, d in curve),
    }


def check_same_losses(task: str, hosts: Network, pythons: Mapping[str, str]) -> float:
    """The largest difference of the dense losses of both frameworks; RuntimeError if too large."""
    hosts.shape(FULL_SPEED)
    losses, steps = [], TASKS[task].checked_steps
    for method in [each for each in METHODS if each.label == DENSE[each.framework]]:
        specification = Specification(task, method, 0, fastest(task, method.name))
        with processes_of(specification, hosts, pythons[method.framework]) as processes:
            processes.ready()
            losses.append(processes.measure("first", 0, 1).result["losses"])
    largest = float(np.max(np.abs(np.subtract(*losses))))  # NaN if a loss is
    print(f"{task}: dense losses differ by {largest:.1e} over {steps} steps", flush=True)
    if not largest <= LARGEST_DIFFERENCE:
        raise RuntimeError(
            f"{task}: the dense losses of PyTorch and JAX differ by {largest:.2e} over the first"
            f" {steps} steps, more than {LARGEST_DIFFERENCE}: they do not train the same."
        )
    return largest


def processes_of(
    specification: Specification,
    hosts: Network,
    python: str,
    settings: Mapping[str, Settings] = TUNED,
) -> HostProcesses:
    """The workers of one run, started by the Python of their framework, with its settings."""
    framework = specification.method.framework
    module = f"benchmarks.time_to_accuracy.{framework}_worker"
    return HostProcesses(hosts, python, module, specification.text(), settings[framework])
