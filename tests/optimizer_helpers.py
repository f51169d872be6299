"""Updates of an optimizer that averages by itself, from gradients that are given."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress.distributed.specs import is_per_worker

WORKERS = 4


def random_gradients(like: Any, steps: int, seed: int = 0, workers: int = WORKERS) -> Any:
    """(steps, workers, …) like `like`: a direction that all share, which turns slowly, and each
    worker's own noise.
    """
    rng = np.random.default_rng(seed)

    def one(x):
        shared = rng.standard_normal(x.shape) + 0.3 * np.cumsum(
            rng.standard_normal((steps, *x.shape)), axis=0
        )
        return (shared[:, None] + rng.standard_normal((steps, workers, *x.shape))).astype(
            np.float32
        )

    return jax.tree.map(one, like)


@functools.cache
def mapped(optimizer: optax.GradientTransformation, workers: int = WORKERS):
    """``step(params, state, grads) -> (updates, params, state)``, where grads are (workers, …); JAX
    proves replicas.
    """
    mesh = jaxcompress.data_mesh(workers)

    def one_worker(params, state, grads):
        own = jax.tree.map(lambda x: x[0], grads)
        updates, state = optimizer.update(own, jaxcompress.squeeze_worker_axis(state), params)
        return updates, optax.apply_updates(params, updates), jaxcompress.expand_worker_axis(state)

    def step(params, state, grads):
        specs = jaxcompress.state_specs(state)
        run = jax.shard_map(
            one_worker, mesh=mesh, in_specs=(P(), specs, P("data")), out_specs=(P(), P(), specs)
        )
        return run(params, state, grads)

    return jax.jit(step)


def updates_of(
    optimizer: optax.GradientTransformation, params: Any, grads: Any, state: Any = None
) -> tuple[list[Any], Any, Any]:
    """All updates, one a step, then the parameters and the state at the end."""
    steps, workers = jax.tree.leaves(grads)[0].shape[:2]
    mesh = jaxcompress.data_mesh(workers)
    params = jaxcompress.replicate(params, mesh)
    state = jaxcompress.init_state(optimizer, params, mesh) if state is None else state
    step, found = mapped(optimizer, workers), []
    for index in range(steps):
        updates, params, state = step(
            params, state, jax.tree.map(lambda x, index=index: jnp.asarray(x[index]), grads)
        )
        found.append(updates)
    return found, params, state


def largest_quarter(x: np.ndarray) -> np.ndarray:
    """What top_k(0.25) sends of a vector."""
    indices = np.argsort(-np.abs(x), kind="stable")[: x.size // 4]
    sent = np.zeros_like(x)
    sent[indices] = x[indices]
    return sent


def placed(state: Any, workers: int) -> Any:
    """A state on the mesh of so many workers."""
    mesh, specs = jaxcompress.data_mesh(workers), jaxcompress.state_specs(state)
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda node: isinstance(node, P)
    )
    return jax.device_put(state, shardings)


def map_per_worker(function: Callable, state: Any) -> Any:
    """`function` of every array that belongs to one worker; all others stay."""
    return jax.tree.map(
        lambda node: jax.tree.map(function, node) if is_per_worker(node) else node,
        state,
        is_leaf=is_per_worker,
    )


def assert_replicas_are_equal(tree: Any) -> None:
    """To the last bit, on every device."""
    for x in jax.tree.leaves(tree):
        key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        shards = (jax.random.key_data(x) if key else x).addressable_shards
        assert len({np.asarray(shard.data).tobytes() for shard in shards}) == 1
