"""Does this installation work?

    python -m benchmarks.validate                    GPUs; with only a CPU, four virtual workers
    python -m benchmarks.validate --workers 8 --only qsgd

Every compressor takes two steps over all devices, and its claims are checked. The columns, each
``ok`` or the problem:

- `law`: the average plus the mean of the residuals is the mean of the updates, in every step; a
  memory counts on both sides. `momentum_correction`, whose velocity adds to the updates, does not
  claim it.
- `nothing lost`: the averages of two steps plus the mean of the memories are the mean of all
  updates. This needs an error memory; compressors without one are checked inside `error_feedback`
  if they allow it.
- `replicas`: the average and all replicated state are bit-identical on all devices.
- `bits`: the bits that a step reports are those of its jaxpr and of its compiled program, and at
  least those of the formula. The compiled program does not count if there is one worker, because
  the compiler then removes the collectives, or if the compiler changed a dtype.

The last line counts the compressors without a problem; the exit code is 1 if one has a problem.
This takes about a minute on two cores.
"""

import dataclasses
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import tyro

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.expressions import SCHEMES
from benchmarks.common.filters import check_filters, matches
from benchmarks.common.pages import markdown
from benchmarks.validate.columns import bits, conserved, law, replicas
from benchmarks.validate.two_steps import Program, Steps, prepare, two_steps

# Every scheme, and two pairs that communicate in a way of their own.
EXPRESSIONS = [
    *SCHEMES.values(),
    "two_phase(block_top_k(0.05, block=64, inner=cast('bfloat16')))",
    "hierarchical(dense(), block_max(16, inner=qsgd(8)))",
]
CHECKS = {"law": law, "nothing lost": conserved, "replicas": replicas, "bits": bits}
NOT_CLAIMED = "not claimed"


@dataclasses.dataclass(frozen=True)
class Options:
    """Which devices and compressors."""

    workers: int = 4  # virtual workers, if there is only a CPU
    # Checks the compressors that contain one of these texts; without any, all of them.
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """ValueError for an invalid number or filter."""
        if self.workers < 1:
            raise ValueError(f"workers must be at least 1; got {self.workers}.")
        check_filters(self.only, EXPRESSIONS)


def main(options: Options) -> int:
    """Checks all compressors, prints a table, and returns the exit code."""
    jaxcompress.virtual_cpu_workers(options.workers)  # no effect with accelerators
    mesh, about = jaxcompress.data_mesh(), environment()
    print(
        f"{mesh.size} workers; " + "; ".join(f"{key} {value}" for key, value in about.items()),
        flush=True,
    )
    texts = [text for text in EXPRESSIONS if matches(text, options.only)]
    # Compiling takes most of the time and runs in threads. Programs over all devices run one after
    # the other.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        ready = [threads.submit(prepared, text, mesh) for text in texts]
        rows = [row(text, future.result) for text, future in zip(texts, ready, strict=True)]
    print(markdown(rows))
    wrong = [
        (each["compressor"], name, each[name])
        for each in rows
        for name in CHECKS
        if not _passed(each[name])
    ]
    for text, name, problem in wrong:
        print(f"{text}: {name}: {problem}", file=sys.stderr)
    passed = len(rows) - len({text for text, _, _ in wrong})
    print(f"Compressors that keep their promises: {passed} of {len(rows)}.")
    return 1 if wrong else 0


def prepared(text: str, mesh: jax.sharding.Mesh) -> tuple[jaxcompress.Compressor, Program]:
    """A compressor, and its compiled program over all devices."""
    compressor = with_memory(jaxcompress.parse(text))
    on = (
        jaxcompress.node_mesh(_nodes(mesh.size))
        if _contains(compressor, jaxcompress.hierarchical)
        else mesh
    )
    return compressor, prepare(compressor, on)


def row(text: str, ready: Callable[[], tuple[jaxcompress.Compressor, Program]]) -> dict[str, Any]:
    """One compressor: the result of every check, or the error that stopped it."""
    try:
        compressor, program = ready()
        steps = two_steps(program)
    # Whatever a broken installation raises, check the other compressors too.
    except Exception as error:
        problem = (
            f"{type(error).__name__}:"
            f" {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        )
        return {"compressor": text, **dict.fromkeys(CHECKS, problem)}
    found = {
        name: _outcome(check, steps)
        for name, check in CHECKS.items()
        if name in claimed(compressor)
    }
    return {"compressor": repr(compressor), **dict.fromkeys(CHECKS, NOT_CLAIMED), **found}


def with_memory(compressor: jaxcompress.Compressor) -> jaxcompress.Compressor:
    """Inside `error_feedback`, unless the compressor has a memory or is no contraction."""
    alone = compressor.has_memory or not compressor.contracts
    return compressor if alone else jaxcompress.error_feedback(compressor)


def claimed(compressor: jaxcompress.Compressor) -> set[str]:
    """The checks of the compressor's claims."""
    # A velocity adds to the updates: what it keeps is checked by the tests of the library.
    law = set() if _contains(compressor, jaxcompress.momentum_correction) else {"law"}
    lost = {"nothing lost"} if _contains(compressor, jaxcompress.error_feedback) else set()
    return {"replicas", "bits"} | law | lost


def _contains(compressor: jaxcompress.Compressor, constructor: Callable) -> bool:
    """Whether `constructor` made `compressor`, or one inside it."""
    calls = [one.call for one in jaxcompress.walk(compressor)]
    return any(call is not None and call.constructor is constructor for call in calls)


def _passed(outcome: str) -> bool:
    return outcome.startswith("ok") or outcome == NOT_CLAIMED


def _nodes(devices: int) -> int:
    """Two nodes, if the number of devices is even."""
    return 2 if devices % 2 == 0 else 1


def _outcome(check: Any, steps: Steps) -> str:
    try:
        return f"ok {check(steps)}".strip()
    except AssertionError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
