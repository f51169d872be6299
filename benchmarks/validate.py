"""Does this installation work? Each kind of compressor takes two steps over all devices, and is held to its promises.

    python -m benchmarks.validate                    GPUs, or four virtual workers if there is only a CPU
    python -m benchmarks.validate --workers 8 --only qsgd

The columns, each ``ok`` or what is wrong:

- `law`: the average that every worker got is the average of what each sent.
- `nothing lost`: the averages of two steps and the mean of the memories are the mean of all updates.
- `replicas`: the average, and all state that is no worker's own, are equal on all devices to the last bit.
- `bits`: what a step reports is what its jaxpr and its compiled program move, and no less than the formula says. The
  compiled one is left out with one worker, where a compiler drops the collectives, and where it changed a dtype.

The last line says how many are well; the exit code is 1 if one is not. About half a minute on two cores.
"""

import dataclasses
import sys
from typing import Any

import jax
import tyro

import jaxcompress
from benchmarks.laws import Steps, bits, conserved, law, replicas, two_steps
from benchmarks.report import circumstances, markdown

EXPRESSIONS = [
    "dense()",
    "cast('bfloat16')",
    "top_k(0.05)",
    "block_top_k(0.05, block=64, inner=qsgd(6))",
    "block_max(16)",
    "qsgd(4)",
    "qsgd(8)",
    "two_phase(qsgd(4))",
    "sign()",
    "power_sgd(2)",
    "hierarchical(dense(), power_sgd(1))",
    "partition({'matrix': power_sgd(1), 'rest': top_k(0.1)}, by_shape())",
]
CHECKS = {"law": law, "nothing lost": conserved, "replicas": replicas, "bits": bits}


@dataclasses.dataclass(frozen=True)
class Options:
    """Which devices and compressors."""

    workers: int = 4  # virtual ones, if there is only a CPU
    only: tuple[str, ...] = ()  # words of which a compressor's text must contain one; all without any

    def __post_init__(self) -> None:
        """ValueError where a number or a word means nothing."""
        if self.workers < 1:
            raise ValueError(f"workers is at least 1; got {self.workers}.")
        if self.only and not any(word in one for word in self.only for one in EXPRESSIONS):
            raise ValueError(f"no compressor contains any of the words {self.only}.")


def main(options: Options) -> int:
    """Checks all, prints a table, and gives the exit code."""
    jaxcompress.virtual_cpu_workers(options.workers)  # accelerators are not concerned
    mesh, about = jaxcompress.data_mesh(), circumstances()
    print(f"{mesh.size} workers; " + "; ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    texts = [f"error_feedback({one})" for one in EXPRESSIONS if any(word in one for word in options.only or ("",))]
    rows = [row(text, mesh) for text in texts]
    print(markdown(rows))
    wrong = [(each["compressor"], name, each[name]) for each in rows for name in CHECKS if each[name][:2] != "ok"]
    for text, name, problem in wrong:
        print(f"{text}: {name}: {problem}", file=sys.stderr)
    sound = len(rows) - len({text for text, _, _ in wrong})
    print(f"Compressors that keep what they promise: {sound} of {len(rows)}.")
    return 1 if wrong else 0


def row(text: str, mesh: jax.sharding.Mesh) -> dict[str, Any]:
    """One compressor: the outcome of every check, or what stopped it."""
    try:
        on = jaxcompress.node_mesh(_nodes(mesh.size)) if "hierarchical" in text else mesh
        steps = two_steps(jaxcompress.parse(text), on)
    except Exception as error:  # whatever a broken installation brings, the others are still to be checked
        problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        return {"compressor": text, **dict.fromkeys(CHECKS, problem)}
    return {"compressor": text, **{name: _outcome(check, steps) for name, check in CHECKS.items()}}


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
