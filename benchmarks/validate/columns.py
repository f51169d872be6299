"""The laws of every compressor, checked on two steps.

A check returns a text for its table cell, and raises AssertionError with the problem.
"""

from typing import Any

import jax
import numpy as np

import jaxcompress
from benchmarks.validate.two_steps import Steps

# Sums of a few thousand float32 terms in another order. It is absolute: the updates are standard
# normal.
TOLERANCE = 3e-5


def law(steps: Steps) -> str:
    """``mean + pmean(residual) == pmean(updates)`` in every step; a memory adds to both sides."""
    memories = [_memory(state, steps.updates[0]) for state in steps.states]
    worst = max(
        _distance(_sum(_row(mean), _average(residual), after), _sum(_average(updates), before))
        for updates, mean, residual, before, after in zip(
            *(steps.updates, steps.means, steps.residuals, memories[:-1], memories[1:]),
            strict=True,
        )
    )
    assert worst <= TOLERANCE, f"mean and residuals differ from the updates by {worst:.1e}"
    return ""


def conserved(steps: Steps) -> str:
    """The averages and the memory together are the updates."""
    out = _sum(_memory(steps.states[-1], steps.updates[0]), *map(_row, steps.means))
    worst = _distance(out, _sum(*map(_average, steps.updates)))
    assert worst <= 2 * TOLERANCE, f"averages and memory differ from the updates by {worst:.1e}"
    return ""


def replicas(steps: Steps) -> str:
    """The same bits on every device, in averages and in replicated state."""
    for name, mean in steps.means[-1].items():
        assert len({worker.tobytes() for worker in mean}) == 1, (
            f"the average of {name!r} differs between devices"
        )
    nodes = jax.tree.leaves(
        steps.states[-1], is_leaf=lambda node: isinstance(node, jaxcompress.PerWorker)
    )
    for x in nodes:
        if not isinstance(x, jaxcompress.PerWorker):
            copies = {np.asarray(shard.data).tobytes() for shard in x.addressable_shards}
            assert len(copies) == 1, f"state of shape {x.shape} differs between devices"
    return ""


def bits(steps: Steps) -> str:
    """Report, jaxpr and compiled program agree, and are at least the formula."""
    found = {"reported": steps.reported, "jaxpr": 8 * steps.requested.payload_bytes}
    if _comparable(steps):
        found["compiled"] = 8 * steps.compiled.payload_bytes
    counts = "; ".join(f"{name} {count:,}" for name, count in found.items())
    assert len(set(found.values())) == 1, counts
    # Messages are padded to whole words, and a second phase sends a part of them again.
    assert steps.formula <= steps.reported, f"formula {steps.formula:,}; {counts}"
    return f"{steps.reported:,} ({len(found)} counts)"


def _comparable(steps: Steps) -> bool:
    workers = len(jax.tree.leaves(steps.updates[0])[0])
    dtypes = [
        {dtype for each in traffic.collectives for dtype in each.dtypes}
        for traffic in (steps.requested, steps.compiled)
    ]
    return workers > 1 and dtypes[0] == dtypes[1]


def _row(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x[0], np.float64), tree)


def _memory(state: Any, like: Any) -> Any:
    """The average of the workers' error memories; zeros where there is none."""
    return _average(jax.device_get(jaxcompress.error_memory(state, like)))


def _sum(*trees: Any) -> Any:
    return jax.tree.map(lambda *parts: sum(parts), *trees)


def _average(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, np.float64).mean(axis=0), tree)


def _distance(tree: Any, other: Any) -> float:
    """The largest difference of two entries; infinite if one is not finite."""
    found = jax.tree.map(
        lambda x, y: float(np.max(np.abs(np.subtract(x, y)), initial=0)), tree, other
    )
    return max((one if np.isfinite(one) else np.inf) for one in jax.tree.leaves(found))
