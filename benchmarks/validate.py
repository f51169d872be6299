"""Does this installation work? Every compressor takes two steps over all devices, and is held to its promises.

    python -m benchmarks.validate                    GPUs, or four virtual workers if there is only a CPU
    python -m benchmarks.validate --workers 8 --only qsgd

The columns, each ``ok`` or what is wrong:

- `law`: the average that every worker got is the average of what each sent. `sign_majority` does not claim it.
- `nothing lost`: the averages of two steps and the mean of the memories are the mean of all updates. Without an error
  memory it is not claimed; whatever can have one is checked inside `error_feedback`.
- `replicas`: the average, and all state that is no worker's own, are equal on all devices to the last bit.
- `bits`: what a step reports is what its jaxpr and its compiled program move, and no less than the formula says. The
  compiled one is left out with one worker, where a compiler drops the collectives, and where it changed a dtype.

The last line says how many are well; the exit code is 1 if one is not. Half a minute on two cores.
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
from benchmarks.laws import Program, Steps, bits, conserved, law, prepare, replicas, two_steps
from benchmarks.report import circumstances, markdown
from benchmarks.schemes import SCHEMES
from benchmarks.words import check_words

# Every scheme, and pairs that travel otherwise than either of the two.
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

    workers: int = 4  # virtual ones, if there is only a CPU
    only: tuple[str, ...] = ()  # words of which a compressor's text must contain one; all without any

    def __post_init__(self) -> None:
        """ValueError where a number or a word means nothing."""
        if self.workers < 1:
            raise ValueError(f"workers is at least 1; got {self.workers}.")
        check_words(self.only, EXPRESSIONS)


def main(options: Options) -> int:
    """Checks all, prints a table, and gives the exit code."""
    jaxcompress.virtual_cpu_workers(options.workers)  # accelerators are not concerned
    mesh, about = jaxcompress.data_mesh(), circumstances()
    print(f"{mesh.size} workers; " + "; ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    texts = [text for text in EXPRESSIONS if any(word in text for word in options.only or ("",))]
    # Compiling takes the time, and several threads can; what runs on all devices runs one after the other.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        ready = [threads.submit(prepared, text, mesh) for text in texts]
        rows = [row(text, future.result) for text, future in zip(texts, ready, strict=True)]
    print(markdown(rows))
    wrong = [(each["compressor"], name, each[name]) for each in rows for name in CHECKS if not _well(each[name])]
    for text, name, problem in wrong:
        print(f"{text}: {name}: {problem}", file=sys.stderr)
    sound = len(rows) - len({text for text, _, _ in wrong})
    print(f"Compressors that keep what they promise: {sound} of {len(rows)}.")
    return 1 if wrong else 0


def prepared(text: str, mesh: jax.sharding.Mesh) -> tuple[jaxcompress.Compressor, Program]:
    """A compressor, and its program over all devices."""
    compressor = with_memory(jaxcompress.parse(text))
    on = jaxcompress.node_mesh(_nodes(mesh.size)) if "hierarchical" in text else mesh
    return compressor, prepare(compressor, on)


def row(text: str, ready: Callable[[], tuple[jaxcompress.Compressor, Program]]) -> dict[str, Any]:
    """One compressor: the outcome of every check, or what stopped it."""
    try:
        compressor, program = ready()
        steps = two_steps(program)
    except Exception as error:  # whatever a broken installation brings, the others are still to be checked
        problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        return {"compressor": text, **dict.fromkeys(CHECKS, problem)}
    found = {name: _outcome(check, steps) for name, check in CHECKS.items() if name in claimed(compressor)}
    return {"compressor": repr(compressor), **dict.fromkeys(CHECKS, NOT_CLAIMED), **found}


def with_memory(compressor: jaxcompress.Compressor) -> jaxcompress.Compressor:
    """Inside `error_feedback`, unless it remembers or votes."""
    alone = compressor.remembers or not compressor.conserves
    return compressor if alone else jaxcompress.error_feedback(compressor)


def claimed(compressor: jaxcompress.Compressor) -> set[str]:
    """The checks of what this compressor claims."""
    held = {"law"} if compressor.conserves else set()
    return {"replicas", "bits"} | held | ({"nothing lost"} if "error_feedback(" in repr(compressor) else set())


def _well(outcome: str) -> bool:
    return outcome.startswith("ok") or outcome == NOT_CLAIMED


def _nodes(devices: int) -> int:
    """Two nodes, wherever the devices divide between them."""
    return 2 if devices % 2 == 0 else 1


def _outcome(check: Any, steps: Steps) -> str:
    try:
        return f"ok {check(steps)}".strip()
    except AssertionError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
