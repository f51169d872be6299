"""The few programs of a compressor that all of its laws share: compiled once, asserted often.

Laws of one compressor follow one another, so only the programs of the last one are kept.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from claims import ALL_COMPRESSORS, made
from helpers import awkward_tree, first_state, random_updates, vmap_axes
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress import Compressor
from jaxcompress.distributed.placement import map_per_worker

WORKERS = 4
# On a mesh of two axes, and as many by `vmap`: from here on quantisers take two phases.
MANY = 8
STEPS = 6
LONG_RUN = 120
# Without a simulated memory, the long run has only the steps that are compared with `shard_map`.
COMPARED = 2

# Every array costs compile time, so no kind is there twice: LARGE has a matrix, SMALL a kernel.
ELSEWHERE = ("single", "matrix", "kernel")
MIXED = {name: x for name, x in awkward_tree().items() if name not in ELSEWHERE}
# In float32 throughout: on CPUs XLA widens a bfloat16 all-reduce, and so moves more than requested.
# The vector is so long that quantisers take two phases for eight workers.
SMALL = {"vector": jnp.zeros(8 * 512 + 37), "kernel": jnp.zeros((3, 3, 4, 10))}
LIMIT = {"kernel": jnp.zeros((3, 3, 4, 10))}
# Beyond every size on which a path depends: full groups of 4,096, rows that top_k counts, chunks.
LARGE = {"matrix": jnp.zeros((321, 409))}


class Result(NamedTuple):
    """One step of all workers, in NumPy; every array but replicated state has a first axis of
    workers.
    """

    updates: Any  # as the compressor got them
    mean: Any
    residual: Any
    bits: Any
    before: Any  # states, as they stand outside a step
    after: Any


class Program(NamedTuple):
    """A compiled step on devices, and what it was compiled from."""

    jaxpr: Any
    compiled: Any
    state: Any  # the first one
    shardings: Any  # of the arguments


@functools.cache
def compressor_of(text: str) -> Compressor:
    """One object per text."""
    return made(text)


def simulates_memory(text: str) -> bool:
    """Whether a long run adds each residual to the next update, as `error_feedback` does."""
    compressor = compressor_of(text)
    return compressor.contracts and not compressor.has_memory


def axes_of(text: str, workers: int) -> dict[str, int]:
    """The mesh axes that a compressor needs, with their sizes."""
    if text in ALL_COMPRESSORS and ALL_COMPRESSORS[text].two_axes:
        return {"node": 2, "gpu": workers // 2}
    return {"data": workers}


@functools.lru_cache(maxsize=1)
def on_devices(text: str) -> Program:
    """The step on the mixed tree, one device for each worker."""
    return _compiled(compressor_of(text), MIXED, axes_of(text, WORKERS))


@functools.lru_cache(maxsize=1)
def on_two_axes(text: str) -> Program:
    """The step on the small tree, two nodes of four devices."""
    return _compiled(compressor_of(text), SMALL, {"node": 2, "gpu": MANY // 2})


@functools.lru_cache(maxsize=1)
def steps(text: str) -> list[Result]:
    """A few steps on the mixed tree."""
    program, state, results = on_devices(text), on_devices(text).state, []
    for step in range(STEPS):
        updates = random_updates(step, MIXED, WORKERS)
        results.append(run_on(program, step, updates, state))
        state = results[-1].after
    return results


def run_on(program: Program, seed: int, updates: Any, state: Any) -> Result:
    """One step of a program on devices."""
    arguments = (jax.random.key(seed), updates, state)
    mean, residual, bits, after = program.compiled(*jax.device_put(arguments, program.shardings))
    return Result(_numpy(updates), _numpy(mean), _numpy(residual), _numpy(bits), state, after)


class LongRun(NamedTuple):
    """Many steps by `vmap`: arrays (steps, workers, …)."""

    updates: Any  # as they came
    carried: Any  # as the compressor got them: with the simulated memory
    mean: Any
    residual: Any
    memory: Any  # the simulated one, or the compressor's own, after the last step: (workers, …)
    states: Any  # the first one, and that after the last step


@functools.lru_cache(maxsize=1)
def long_run(text: str) -> LongRun:
    """Typical gradients, different on each worker and drifting, with error feedback simulated."""
    compressor = compressor_of(text)
    return simulated(text, compressor, SMALL, MANY, simulates_memory(text))


def typical_updates(like: Any, workers: int, steps: int) -> Any:
    """Gradients that share a direction: (steps, workers, …)."""
    noise = random_updates(11, like, steps * workers)
    shared = random_updates(12, like, 1)
    return jax.tree.map(
        lambda x, common: x.reshape(steps, workers, *x.shape[1:]) + common, noise, shared
    )


def simulated(
    text: str, compressor: Compressor, like: Any, workers: int, remembers: bool
) -> LongRun:
    """`LONG_RUN` steps, each residual added to the next update, if `remembers`."""
    steps = LONG_RUN if remembers else COMPARED
    reduce = over_vmap(compressor, axes_of(text, workers))
    updates = typical_updates(like, workers, steps)

    def step(carry, given):
        state, memory = carry
        number, x = given
        carried = jax.tree.map(jnp.add, x, memory)
        mean, residual, _, after = reduce(jax.random.key(number), carried, state)
        left = residual if remembers else jax.tree.map(jnp.zeros_like, memory)
        after = jax.tree.map(lambda new, old: new.astype(old.dtype), after, state)
        return (after, left), (carried, mean, residual)

    first = first_state(compressor, like, workers)
    start = (first, jax.tree.map(lambda x: jnp.zeros_like(x[0]), updates))
    (last, left), seen = jax.jit(lambda start, xs: jax.lax.scan(step, start, xs))(
        start, (jnp.arange(steps), updates)
    )
    own = jaxcompress.error_memory(last, left)
    memory = _numpy(left if remembers else own)
    return LongRun(_numpy(updates), *map(_numpy, seen), memory, (first, last))


@functools.lru_cache(maxsize=1)
def large_program(text: str) -> Callable:
    """The step on the large tree, of as few workers as there can be, by `vmap`."""
    return jax.jit(over_vmap(compressor_of(text), axes_of(text, large_workers(text))))


def large_workers(text: str) -> int:
    return 4 if ALL_COMPRESSORS[text].two_axes else 2


@functools.lru_cache(maxsize=1)
def large_step(text: str) -> Result:
    """One step on the large tree."""
    return run_large(text, random_updates(5, LARGE, large_workers(text)))


def run_large(text: str, updates: Any) -> Result:
    """One step on the large tree from the first state."""
    state = first_state(compressor_of(text), LARGE, large_workers(text))
    mean, residual, bits, after = large_program(text)(jax.random.key(1), updates, state)
    return Result(_numpy(updates), _numpy(mean), _numpy(residual), _numpy(bits), state, after)


def over_vmap(compressor: Compressor, axes: dict[str, int]) -> Callable:
    """(key, updates, state) -> (mean, residual, bits, state) of all workers, on one device."""

    def reduce(key, updates, state):
        parts = vmap_axes(state)

        def one_worker(updates, state):
            reduced, state = compressor.reduce(key, updates, state, _axis_name(axes))
            return (
                reduced.mean,
                reduced.residual,
                jnp.asarray(reduced.bits, jnp.float32),
                state,
            )

        mapped = one_worker
        for name in reversed(axes):
            mapped = jax.vmap(
                mapped, (0, parts), (0, 0, 0, parts), axis_name=name, axis_size=axes[name]
            )
        split, join = functools.partial(_split_axes, axes), functools.partial(_join_axes, axes)
        *seen, state = mapped(jax.tree.map(split, updates), map_per_worker(split, state))
        return *jax.tree.map(join, seen), map_per_worker(join, state)

    return reduce


def _split_axes(axes: dict[str, int], x: jax.Array) -> jax.Array:
    return x.reshape(*axes.values(), *x.shape[1:])


def _join_axes(axes: dict[str, int], x: jax.Array) -> jax.Array:
    return x.reshape(math.prod(axes.values()), *x.shape[len(axes) :])


def _compiled(compressor: Compressor, like: Any, axes: dict[str, int]) -> Program:
    """Traced once and compiled once."""
    workers, axis_name = math.prod(axes.values()), _axis_name(axes)
    devices = np.array(jax.devices()[:workers]).reshape(*axes.values())
    mesh = Mesh(devices, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    state = first_state(compressor, like, workers)
    specs = jaxcompress.state_specs(state, axis_name)

    def one_worker(key, updates, state):
        own = jax.tree.map(lambda x: x[0], updates)
        state = jaxcompress.squeeze_worker_axis(state)
        reduced, state = compressor.reduce(key, own, state, axis_name)
        bits = jnp.asarray(reduced.bits, jnp.float32)
        seen = jax.tree.map(lambda x: x[None], (reduced.mean, reduced.residual, bits))
        return *seen, jaxcompress.expand_worker_axis(state)

    rows = P(axis_name)
    given, updates = (P(), rows, specs), random_updates(0, like, workers)
    step = jax.shard_map(
        one_worker, mesh=mesh, in_specs=given, out_specs=(rows, rows, rows, specs), check_vma=True
    )
    shardings = _shardings(mesh, (P(), jax.tree.map(lambda _: rows, updates), specs))
    arguments = jax.device_put((jax.random.key(0), updates, state), shardings)
    traced = jax.jit(step).trace(*arguments)
    return Program(traced.jaxpr, traced.lower().compile(), arguments[2], shardings)


def _shardings(mesh: Mesh, specs: Any) -> Any:
    def sharding(spec):
        return NamedSharding(mesh, spec)

    return jax.tree.map(sharding, specs, is_leaf=lambda node: isinstance(node, P))


def _axis_name(axes: dict[str, int]) -> str | tuple[str, ...]:
    return next(iter(axes)) if len(axes) == 1 else tuple(axes)


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
