"""One training run over a shaped network, and the check that both frameworks train the same."""

from collections.abc import Mapping
from typing import Any

from benchmarks.common.results import Row
from benchmarks.hosts.host_processes import HostProcesses
from benchmarks.hosts.namespaces import Network
from benchmarks.time_to_accuracy.methods import DENSE, METHODS, Method, expression
from benchmarks.time_to_accuracy.specification import CHECKED_STEPS, Specification
from benchmarks.time_to_accuracy.table import row
from benchmarks.time_to_accuracy.tasks import TASKS

FULL_SPEED = "100gbit"
LARGEST_DIFFERENCE = 1e-3  # of the dense losses in both frameworks


def run(task: str, method: Method, seed: int, hosts: Network, rate: str, python: str) -> Row:
    """Trains until the target is reached."""
    wanted, curve = TASKS[task], []
    hosts.shape(FULL_SPEED)
    with processes_of(task, method, seed, hosts, python) as processes:
        about, seconds, sent = processes.ready(), 0.0, 0.0
        hosts.shape(rate)
        for steps in range(wanted.check_every, wanted.most_steps + 1, wanted.check_every):
            trained = processes.measure("train", 0, 1)
            seconds += trained.ms[0] / 1e3
            sent += trained.sent_bytes
            loss = processes.measure("validation", 0, 1).result["loss"]
            curve.append((steps, seconds, sent / 1e6, loss))
            # A run that diverges does not come back.
            if loss <= wanted.target or not loss < 10:
                break
        test = processes.measure("test", 0, 1).result
    found = row(task, method, expression(method, wanted), len(hosts.hosts), rate, seed)
    found |= results(curve, wanted.target, test, about)
    print(", ".join(f"{key} {value}" for key, value in list(found.items())[:11]), flush=True)
    return found


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


def check_same_losses(task: str, hosts: Network, pythons: Mapping[str, str]) -> None:
    """RuntimeError unless dense training has the same losses in both frameworks."""
    hosts.shape(FULL_SPEED)
    losses = []
    for method in [each for each in METHODS if each.label == DENSE[each.framework]]:
        with processes_of(task, method, 0, hosts, pythons[method.framework]) as processes:
            processes.ready()
            losses.append(processes.measure("first", 0, 1).result["losses"])
    largest = max(abs(a - b) for a, b in zip(*losses, strict=True))
    print(f"{task}: dense losses differ by {largest:.1e} over {CHECKED_STEPS} steps", flush=True)
    if not largest <= LARGEST_DIFFERENCE:
        raise RuntimeError(
            f"{task}: the dense losses of PyTorch and JAX differ by {largest:.2e} over the first"
            f" {CHECKED_STEPS} steps, more than {LARGEST_DIFFERENCE}: they do not train the same."
        )


def processes_of(
    task: str, method: Method, seed: int, hosts: Network, python: str
) -> HostProcesses:
    """The workers of one run."""
    module = f"benchmarks.time_to_accuracy.{method.framework}_worker"
    return HostProcesses(hosts, python, module, Specification(task, tuple(method), seed).text())
