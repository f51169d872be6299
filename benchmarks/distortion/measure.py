"""The relative error and the bits of a compressor on given gradients, and a bound."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcompress

STEPS = 3  # on the same gradients: the first ones give low rank its warm start


def distortion(text: str, grads: Any, seed: int) -> tuple[jax.Array, jax.Array]:
    """The relative error and the bits of one worker's message.

    Low rank has two earlier steps to find a warm start.
    """
    error, bits = compiled(text)(
        jax.random.key(seed), jax.tree.map(lambda x: jnp.asarray(x)[None], grads)
    )
    return error[0], bits[0]


@functools.cache
def compiled(text: str) -> Callable[[jax.Array, Any], tuple[jax.Array, jax.Array]]:
    """The compiled measurement, for all gradients of a task."""
    compressor = jaxcompress.parse(text)

    def one_worker(key, grads):
        def step(number, carry):
            reduced, state = compressor.reduce(
                jax.random.fold_in(key, number), grads, carry[-1], "data"
            )
            return reduced.residual, jnp.asarray(reduced.bits, jnp.float32), state

        # A loop, because one step compiles faster than three.
        start = jax.tree.map(jnp.zeros_like, grads), jnp.float32(0), compressor.init(key, grads)
        residual, bits, _ = jax.lax.fori_loop(0, STEPS, step, start)
        return _energy(residual) / _energy(grads), bits

    return jax.jit(jax.vmap(one_worker, in_axes=(None, 0), axis_name="data"))


def bound(task: str, stage: str, density: float, grads: Any) -> dict[str, Any]:
    """The least error of any choice of entries from the whole model."""
    energies = np.sort(
        np.concatenate(
            [np.square(np.asarray(x, np.float64)).ravel() for x in jax.tree.leaves(grads)]
        )
    )
    kept = max(1, round(density * len(energies)))
    share = kept / len(energies)
    entropy = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    return {
        **{"task": task, "stage": stage, "compressor": f"bound: the largest {density:g}"},
        "bits_per_entry": f"{entropy + 32 * share:.4f}",
        "relative_error": f"{energies[:-kept].sum() / energies.sum():.5f}",
    }


def _energy(tree: Any) -> jax.Array:
    return sum(
        (jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(tree)), jnp.float32(0)
    )
