"""Gradients of a batch in micro-batches: less memory, and one message for the whole batch."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress._compat import vary
from jaxcompress.base import AxisName
from jaxcompress.feedback.memories import zeros_like_memory


def accumulated(value_and_grad: Callable, micro_batches: int, axis_name: AxisName) -> Callable:
    """`value_and_grad` over a batch, as means over `micro_batches` parts of its rows.

    It has the form ``(params, extra, batch) -> ((loss, (extra, metrics)), grads)``. Gradients are
    added in at least float32. Metrics that are neither floating nor complex must be the same
    for all parts and all workers; the last part's value is returned.
    """
    if micro_batches == 1:
        return value_and_grad

    def run(params, extra, batch):
        parts = jax.tree.map(lambda x: _parts(x, micro_batches), batch)

        def one(carry, part):
            extra, total = carry
            (loss, (extra, metrics)), grads = value_and_grad(params, extra, part)
            extra = own(jax.tree.map(jnp.asarray, extra))
            return (extra, jax.tree.map(jnp.add, total, grads)), (loss, metrics)

        def own(extra):
            # Counters and keys are not averaged, so JAX must know them as replicated.
            return jax.tree.map(lambda x: vary(x, axis_name) if _is_inexact(x) else x, extra)

        first = own(jax.tree.map(jnp.asarray, extra)), vary(zeros_like_memory(params), axis_name)
        (extra, total), (losses, metrics) = lax.scan(one, first, parts)
        grads = jax.tree.map(
            lambda grad, param: (grad / micro_batches).astype(param.dtype), total, params
        )
        return (losses.mean(), (extra, jax.tree.map(_mean, metrics))), grads

    return run


def _parts(x: jax.Array, micro_batches: int) -> jax.Array:
    """(rows, …) to (parts, rows of a part, …)."""
    if x.shape[0] % micro_batches:
        raise ValueError(
            f"micro_batches cuts each worker's rows into parts of one size; {x.shape[0]} rows do"
            f" not divide by {micro_batches}."
        )
    return x.reshape(micro_batches, x.shape[0] // micro_batches, *x.shape[1:])


def _mean(values: Any) -> jax.Array:
    return values.mean(axis=0) if _is_inexact(values) else values[-1]


def _is_inexact(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)
