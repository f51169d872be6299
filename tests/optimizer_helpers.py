"""Updates of an optimizer that averages by itself, from gradients that are given."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from helpers import top_k_of_rows
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.network.jax_worker import averaging

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
    return top_k_of_rows(x, x.size // 4)


def placed(state: Any, workers: int) -> Any:
    """A state on the mesh of so many workers."""
    mesh, specs = jaxcompress.data_mesh(workers), jaxcompress.state_specs(state)
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda node: isinstance(node, P)
    )
    return jax.device_put(state, shardings)


def assert_replicas_are_equal(tree: Any) -> None:
    """To the last bit, on every device."""
    for x in jax.tree.leaves(tree):
        key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        shards = (jax.random.key_data(x) if key else x).addressable_shards
        assert len({np.asarray(shard.data).tobytes() for shard in shards}) == 1


def temporary_copies(link: optax.GradientTransformation) -> float:
    """The temporary memory of a compiled average with donated state, in copies of the gradient."""
    mesh, grads = jaxcompress.data_mesh(WORKERS), {"w": jnp.zeros((3, 1024, 128))}
    state = jaxcompress.init_state(link, jaxcompress.replicate(grads, mesh), mesh)
    of_all = jaxcompress.shard_batch({"w": np.zeros((WORKERS, 3, 1024, 128), np.float32)}, mesh)
    compiled = averaging(link, state, mesh).lower(of_all, state).compile()
    return compiled.memory_analysis().temp_size_in_bytes / grads["w"].nbytes
