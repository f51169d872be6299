"""Keeps the same rows on all workers: the largest of the average, estimated from a sketch."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress.base import Compressor, Reduced, parseable
from jaxcompress.collectives.dense import dense, fused_mean
from jaxcompress.ops.argument_checks import check_integer, check_stateless
from jaxcompress.ops.quantization import in_groups
from jaxcompress.ops.selection import check_block, check_density, num_kept, sorted_top_k_indices
from jaxcompress.ops.trees import sum_bits


@parseable
def arc_top_k(
    density: float, block: int = 1024, columns: int = 4, inner: Compressor = dense()
) -> Compressor:
    """Keeps the ``k = max(1, round(density * rows))`` rows whose estimated average is largest.

    The flattened array is cut into rows of `block` consecutive entries; the last row is padded with
    zeros. A key that all workers share gives a Gaussian matrix G (block x columns)::

        S = mean_w(X_w G)    rows: the k largest |S_i|    residual = 0 in these rows, X elsewhere

    ``|S_i|^2 / columns`` is an unbiased estimate of ``|mean_w(X_w)_i|^2``. So the rows that are
    kept are large in the average, not only on one worker.

    How it travels: the sketch, ``32 columns / block`` bits per entry, by a dense all-reduce. Then
    the ``k * block`` values, averaged by `inner`. All workers find the same indices, so no indices
    are sent, and no message grows with the number of workers.

    Guarantees: the law of `Reduced`; ``|residual| <= |x|`` with an exact `inner`. Biased: use it
    inside `error_feedback`. At density 1 it is dense.

    Args:
      density: The fraction of rows kept, in (0, 1].
      block: Entries in a row, at least 2.
      columns: Columns of the sketch, at least 1; more give better estimates.
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `density` is not in (0, 1], `block` or `columns` is out of its range, or
        `inner` has a memory.

    Example:
      >>> arc_top_k(0.01)
      arc_top_k(0.01)

    References:
      `An All-Reduce Compatible Top-K Compressor for Communication-Efficient Distributed Learning
      <https://arxiv.org/abs/2510.26709>`_, 2025
    """
    check_density(density)
    check_stateless("arc_top_k", inner)
    check_block(block)
    check_integer("columns", columns, 1, "the width of the sketch")

    def image(x):
        return jax.ShapeDtypeStruct(
            (num_kept(density, _rows(x, block)), max(1, min(block, x.size))), x.dtype
        )

    def init(key, params):
        return inner.init(key, jax.tree.map(image, params))

    def reduce(key, updates, state, axis_name):
        leaves, treedef = jax.tree.flatten(updates)
        sketch_key, inner_key = jax.random.split(key)
        rows = [in_groups(x, block) for x in leaves]
        sketches = jax.tree.leaves(
            fused_mean([_sketch(sketch_key, one, columns) for one in rows], axis_name)
        )
        indices = [
            sorted_top_k_indices(jnp.sum(one**2, axis=1)[None], density)[0] for one in sketches
        ]
        values = [one[at] for one, at in zip(rows, indices, strict=True)]
        reduced, state = inner.reduce(inner_key, treedef.unflatten(values), state, axis_name)

        def whole(parts, rows):
            each = zip(jax.tree.leaves(parts), indices, rows, leaves, strict=True)
            return treedef.unflatten([_put(part, at, one, x) for part, at, one, x in each])

        mean = whole(reduced.mean, [jnp.zeros(x.shape, x.dtype) for x in rows])
        bits = sum_bits([32 * sum(one.size for one in sketches), reduced.bits])
        return Reduced(mean, whole(reduced.residual, rows), bits), state

    def message_bits(params):
        values = inner.message_bits(jax.tree.map(image, params))
        return jax.tree.map(lambda bits, x: bits + 32 * columns * _rows(x, block), values, params)

    contracts = inner.contracts
    return Compressor(init, reduce, message_bits, contracts=contracts, sparsifies=True)


def _rows(x: Any, block: int) -> int:
    return -(-x.size // max(1, min(block, x.size)))


def _sketch(key: jax.Array, rows: jax.Array, columns: int) -> jax.Array:
    gaussian = jax.random.normal(key, (rows.shape[1], columns), jnp.float32)
    # Full precision: the selection depends on it.
    return jnp.matmul(rows.astype(jnp.float32), gaussian, precision=lax.Precision.HIGHEST)


def _put(values: jax.Array, indices: jax.Array, rows: jax.Array, like: jax.Array) -> jax.Array:
    """`rows` with these values in these rows, in the shape of `like`."""
    whole = rows.at[indices].set(values.astype(rows.dtype), unique_indices=True)
    return whole.ravel()[: like.size].reshape(like.shape)
