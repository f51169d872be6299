"""What the tests share: a tree of awkward arrays, workers to run on, tolerances, and how to
compare.
"""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress import Compressor
from jaxcompress.distributed.placement import as_numpy, map_per_worker
from jaxcompress.distributed.specs import is_per_worker

WORKERS = 4

# Sums of a few thousand float32 terms in another order: eps * sqrt(terms), with a factor 10 of
# room.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}
# bfloat16 keeps 8 bits: one rounding is 2^-9 of the value, and the mean of four rounded values a
# little more.
BFLOAT16 = {"rtol": 2e-2, "atol": 2e-2}
# float16 keeps 11: the same, an eighth of it.
FLOAT16 = {"rtol": 2.5e-3, "atol": 2.5e-3}


def slow(*values: Any) -> list[Any]:
    """Values of a parameter that repeat a code path of the others: among the slow tests."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def slow_unless(fast: Iterable[tuple], *values: Iterable[Any]) -> list[Any]:
    """All combinations of these values; those that are not `fast` are among the slow tests."""
    fast = list(fast)
    every = list(itertools.product(*values))
    assert all(one in every for one in fast), "a fast combination is none of them"
    return [pytest.param(*one, marks=[] if one in fast else [pytest.mark.slow]) for one in every]


def awkward_tree() -> dict[str, Any]:
    """Parameters of every kind: scalar, one entry, vector, matrix, conv kernel, bfloat16, empty,
    masked, no array.
    """
    return {
        "scalar": jnp.zeros(()),
        "single": jnp.zeros((1,)),
        "vector": jnp.zeros((37,)),
        "matrix": jnp.zeros((40, 30)),
        "kernel": jnp.zeros((3, 3, 4, 10)),
        "half": jnp.zeros((24, 16), jnp.bfloat16),
        "empty": jnp.zeros((0, 3)),
        "masked": optax.MaskedNode(),
        "nested": {"none": None, "nothing": {}},
    }


def random_updates(seed: int, like: Any, workers: int = WORKERS) -> Any:
    """Different updates for every worker: standard normal entries of shape (workers, …) like
    `like`.
    """
    leaves, treedef = jax.tree.flatten(like)
    rng = np.random.default_rng(seed)
    return treedef.unflatten(
        # Converted by NumPy, since JAX compiles a program for each shape.
        [jnp.asarray(rng.standard_normal((workers, *x.shape)).astype(x.dtype)) for x in leaves]
    )


class Outcome(NamedTuple):
    """One reduction seen from outside; every array has a first axis of workers, replicated ones
    too.
    """

    mean: Any
    residual: Any
    sent: Any  # updates - residual
    bits: jax.Array  # (workers,)
    state: Any  # as a step keeps it: PerWorker parts (workers, …), all else replicated


def first_state(compressor: Compressor, params: Any, workers: int = WORKERS, seed: int = 0) -> Any:
    """The compressor's state as it stands outside a step."""
    # Operation by operation: zeros of one shape are compiled once for all compressors.
    state = compressor.init(jax.random.key(seed), params)
    return map_per_worker(lambda x: jnp.broadcast_to(x, (workers, *x.shape)), state)


def run(
    compressor: Compressor, updates: Any, state: Any, seed: int = 1, how: str = "shard_map"
) -> Outcome:
    """One reduction over as many workers as the first axis of `updates` is long, by `shard_map` or
    by `vmap`.
    """
    workers = jax.tree.leaves(updates)[0].shape[0]
    if how == "shard_map":
        updates, state = _placed(updates, state, workers)
    return runner(compressor, workers, how)(jax.random.key(seed), updates, state)


def _placed(updates: Any, state: Any, workers: int) -> tuple[Any, Any]:
    """On the mesh already, as a step finds them: arrays from elsewhere would be a second program to
    compile. They come from NumPy, which needs no program to cut them.
    """
    updates, state = jax.tree.map(in_numpy, (updates, state))
    mesh = jaxcompress.data_mesh(workers)
    specs = (jax.tree.map(lambda _: P("data"), updates), jaxcompress.state_specs(state))
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda node: isinstance(node, P)
    )
    return jax.device_put((updates, state), shardings)


def in_numpy(x: Any) -> Any:
    """An array of JAX by NumPy, unless it is a random key."""
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)


@functools.cache
def runner(
    compressor: Compressor, workers: int, how: str
) -> Callable[[jax.Array, Any, Any], Outcome]:
    """The jitted reduction behind `run`; compiled once for each compressor and number
    of workers.
    """
    return jax.jit({"shard_map": _by_shard_map, "vmap": _by_vmap}[how](compressor, workers))


def _by_shard_map(compressor: Compressor, workers: int) -> Callable:
    mesh = jaxcompress.data_mesh(workers)

    def one_worker(key, updates, state):
        updates, state = (
            jax.tree.map(lambda x: x[0], updates),
            map_per_worker(lambda x: x[0], state),
        )
        reduced, state = compressor.reduce(key, updates, state, "data")
        sent = jax.tree.map(jnp.subtract, updates, reduced.residual)
        bits = jnp.asarray(reduced.bits, jnp.float32)
        seen = jax.tree.map(lambda x: x[None], (reduced.mean, reduced.residual, sent, bits))
        return (*seen, map_per_worker(lambda x: x[None], state))

    def reduce(key, updates, state):
        specs = jaxcompress.state_specs(state)
        rows = (P("data"),) * 4
        step = jax.shard_map(
            one_worker,
            mesh=mesh,
            in_specs=(P(), P("data"), specs),
            out_specs=(*rows, specs),
            check_vma=True,
        )
        return Outcome(*step(key, updates, state))

    return reduce


def _by_vmap(compressor: Compressor, workers: int) -> Callable:
    def reduce(key, updates, state):
        axes = vmap_axes(state)

        def one_worker(updates, state):
            reduced, state = compressor.reduce(key, updates, state, "data")
            bits = jnp.asarray(reduced.bits, jnp.float32)
            return reduced.mean, reduced.residual, bits, state

        mean, residual, bits, state = jax.vmap(
            one_worker,
            in_axes=(0, axes),
            out_axes=(0, 0, 0, axes),
            axis_name="data",
            axis_size=workers,
        )(updates, state)
        sent = jax.tree.map(jnp.subtract, updates, residual)
        return Outcome(mean, residual, sent, bits, state)

    return reduce


def assert_close(actual: Any, expected: Any, scale: float = 1.0, rounding: float = 0.0) -> None:
    """Equal up to the rounding of the coarser of the two dtypes, leaf by leaf; `scale` is the size
    of the numbers.

    `rounding` is what a compressor says that it rounds itself, in the units of the numbers.
    """
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, a), e in zip(
        jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True
    ):
        dtypes = (a.dtype, e.dtype)
        tolerance = (
            BFLOAT16 if jnp.bfloat16 in dtypes else FLOAT16 if jnp.float16 in dtypes else FLOAT32
        )
        a, e = np.asarray(a, np.float64), np.asarray(e, np.float64)
        rtol, atol = tolerance["rtol"], tolerance["atol"] * scale + rounding
        np.testing.assert_allclose(a, e, rtol=rtol, atol=atol, err_msg=jax.tree_util.keystr(path))


def largest(tree) -> float:
    leaves = (np.asarray(x, np.float64) for x in jax.tree.leaves(tree))
    return max((float(np.abs(x).max(initial=0)) for x in leaves), default=0.0)


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Equal to the last bit, leaf by leaf, NaN included."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, e = as_numpy(a), as_numpy(e)
        assert a.dtype == e.dtype and a.shape == e.shape
        assert a.tobytes() == e.tobytes()


def mean_over_workers(tree: Any) -> Any:
    """The NumPy oracle of `pmean`, in float64."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64).mean(axis=0), tree)


def energy(x: Any) -> float:
    """|x|^2, summed in more than float64 where the platform has it."""
    return float(np.sum(np.square(np.asarray(x, np.longdouble))))


def top_k_of_rows(x: np.ndarray, kept: int) -> np.ndarray:
    """`x` with all but its `kept` largest magnitudes set to zero, row by row; of equal ones, the
    first are kept.
    """
    indices = np.argsort(-np.abs(x), axis=-1, kind="stable")[..., :kept]
    sent = np.zeros_like(x)
    np.put_along_axis(sent, indices, np.take_along_axis(x, indices, -1), -1)
    return sent


def vmap_axes(state: Any) -> Any:
    """For `jax.vmap`: 0 where a part of the state has a row for each worker, else None."""
    return jax.tree.map(
        lambda node: 0 if is_per_worker(node) else None, state, is_leaf=is_per_worker
    )
