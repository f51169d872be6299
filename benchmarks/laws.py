"""What every compressor promises, checked on two steps over the devices that are there.

A check returns what is to be shown beside ``ok``, and raises an AssertionError that says what is wrong.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress import Compressor, Traffic
from jaxcompress.base import AxisName

SHAPES = {"kernel": (3, 3, 16, 24), "vector": (37,)}
# Sums of a few thousand float32 terms in another order, relative to 1: the updates are standard normal.
TOLERANCE = 3e-5
# On CPUs without LLVM's optimisation: a program that runs twice is ready in half the time. XLA's passes are the same.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Program(NamedTuple):
    """A reduction that is compiled, and what it takes."""

    step: Any  # (key, updates, state) -> ((mean, sent, bits), state)
    updates: list[Any]  # of the two steps
    state: Any  # before the first
    formula: int  # bits of a step, from shapes alone
    asked: Traffic  # by the jaxpr
    moved: Traffic  # by the compiled program


class Steps(NamedTuple):
    """Two steps seen from outside; every array has a first axis of workers, replicated ones too."""

    updates: list[Any]
    means: list[Any]
    sent: list[Any]
    reported: int  # bits of a step, the larger of both, as the compressor says
    formula: int  # the same from shapes alone
    state: Any  # as it stands outside a step
    asked: Traffic  # by the jaxpr
    moved: Traffic  # by the compiled program


def prepare(compressor: Compressor, mesh: Mesh) -> Program:
    """Compiles a reduction, and runs nothing on several devices together: several threads may prepare at once."""
    params = {name: jnp.zeros(shape) for name, shape in SHAPES.items()}
    axes = _axes(mesh)
    first = optax.GradientTransformation(
        lambda params: compressor.init(jax.random.key(0), params), optax.identity().update
    )
    options = QUICK if mesh.devices.flat[0].platform == "cpu" else None
    begin = jax.jit(lambda params: jaxcompress.init_state(first, params, mesh, axes)).lower(params)
    state, updates = begin.compile(options)(params), [_random(number, mesh) for number in range(2)]
    # Compiled once, to be run and to be counted.
    traced = jax.jit(_reduction(compressor, mesh)).trace(jax.random.key(0), updates[0], state)
    step = traced.lower().compile(options)
    formula = sum(jax.tree.leaves(compressor.message_bits(params)))
    asked, moved = jaxcompress.traffic_of_jaxpr(traced.jaxpr), jaxcompress.traffic_of_hlo(step.as_text())
    return Program(step, updates, state, formula, asked, moved)


def two_steps(program: Program) -> Steps:
    """Reduces random updates of all workers twice, with the state of the first step in the second."""
    state = program.state
    means, sent, bits = [], [], []
    for number, updates in enumerate(program.updates):
        (mean, mine, size), state = program.step(jax.random.key(number), updates, state)
        bits.append(int(size[0]))
        means.append(jax.device_get(mean))
        sent.append(jax.device_get(mine))
    updates = [jax.device_get(one) for one in program.updates]
    counted = program.formula, state, program.asked, program.moved
    return Steps(updates, means, sent, max(bits), *counted)


def law(steps: Steps) -> str:
    """``mean == pmean(sent)`` in every step."""
    worst = max(_distance(_row(mean), _average(sent)) for mean, sent in zip(steps.means, steps.sent, strict=True))
    assert worst <= TOLERANCE, f"the mean differs from the average of what was sent by {worst:.1e}"
    return ""


def conserved(steps: Steps) -> str:
    """What came out and what is remembered are together what came in."""
    memory = _average(jax.device_get(jaxcompress.error_memory(steps.state, steps.updates[0])))
    out = jax.tree.map(lambda *parts: sum(parts), memory, *map(_row, steps.means))
    worst = _distance(out, jax.tree.map(lambda *parts: sum(parts), *map(_average, steps.updates)))
    assert worst <= 2 * TOLERANCE, f"averages and memory differ from what came in by {worst:.1e}"
    return ""


def replicas(steps: Steps) -> str:
    """The same bits on every device, for averages and for state that belongs to no single worker."""
    for name, mean in steps.means[-1].items():
        assert len({worker.tobytes() for worker in mean}) == 1, f"the average of {name!r} differs between devices"
    nodes = jax.tree.leaves(steps.state, is_leaf=lambda node: isinstance(node, jaxcompress.PerWorker))
    for x in nodes:
        if not isinstance(x, jaxcompress.PerWorker):
            copies = {np.asarray(shard.data).tobytes() for shard in x.addressable_shards}
            assert len(copies) == 1, f"state of shape {x.shape} differs between devices"
    return ""


def bits(steps: Steps) -> str:
    """Report, jaxpr and compiled program agree, and are no less than one message of each array."""
    found = {"reported": steps.reported, "jaxpr": 8 * steps.asked.payload_bytes}
    if _comparable(steps):
        found["compiled"] = 8 * steps.moved.payload_bytes
    counts = "; ".join(f"{name} {count:,}" for name, count in found.items())
    assert len(set(found.values())) == 1, counts
    # Messages are filled up to whole words, and a second phase sends a part of them again.
    assert steps.formula <= steps.reported, f"formula {steps.formula:,}; {counts}"
    return f"{steps.reported:,} ({len(found)} counts)"


def _comparable(steps: Steps) -> bool:
    workers = len(jax.tree.leaves(steps.updates[0])[0])
    dtypes = [
        {dtype for each in traffic.collectives for dtype in each.dtypes} for traffic in (steps.asked, steps.moved)
    ]
    return workers > 1 and dtypes[0] == dtypes[1]


def _axes(mesh: Mesh) -> AxisName:
    """All axes of a mesh, as a step calls them."""
    return mesh.axis_names if len(mesh.axis_names) > 1 else mesh.axis_names[0]


def _reduction(compressor: Compressor, mesh: Mesh) -> Any:
    axes = _axes(mesh)

    def one_worker(key, updates, state):
        updates = jax.tree.map(lambda x: x[0], updates)
        reduced, state = compressor.reduce(key, updates, jaxcompress.own_part(state), axes)
        seen = (reduced.mean, reduced.sent, jnp.asarray(reduced.bits, jnp.float32))
        return jax.tree.map(lambda x: x[None], seen), jaxcompress.as_block(state)

    def reduce(key, updates, state):
        specs = jaxcompress.state_specs(state, axes)
        sharded = jax.shard_map(
            one_worker, mesh=mesh, in_specs=(P(), P(axes), specs), out_specs=(P(axes), specs), check_vma=True
        )
        return sharded(key, updates, state)

    return reduce


def _random(seed: int, mesh: Mesh) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    updates = {name: rng.standard_normal((mesh.size, *shape), np.float32) for name, shape in SHAPES.items()}
    return jaxcompress.shard_batch(updates, mesh, _axes(mesh))


def _row(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x[0], np.float64), tree)


def _average(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, np.float64).mean(axis=0), tree)


def _distance(tree: Any, other: Any) -> float:
    """The largest difference of two entries; infinite if there is one that is not finite."""
    found = jax.tree.map(lambda x, y: float(np.max(np.abs(np.subtract(x, y)), initial=0)), tree, other)
    return max((one if np.isfinite(one) else np.inf) for one in jax.tree.leaves(found))
