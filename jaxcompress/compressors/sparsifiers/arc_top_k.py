"""The largest rows of the average, as a small sketch of it tells: places in common."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress.base import Compressor, Reduced, expressible, facts_of
from jaxcompress.collectives.dense import dense, fused_mean
from jaxcompress.ops.checks import check_forgets, check_integer
from jaxcompress.ops.selection import check_block, check_density, kept_of, largest_in_order
from jaxcompress.ops.trees import sum_bits


@expressible
def arc_top_k(density: float, block: int = 1024, columns: int = 4, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * rows))`` rows of each array whose average over the workers seems largest.

    The flattened array is cut into rows of `block` neighbours, the last one filled with zeros. With a Gaussian matrix G
    (block x columns) from a shared key::

        S = mean_w(X_w G)          rows: the k largest |S_i|          sent = X at these rows, 0 elsewhere

    ``|S_i|^2 / columns`` estimates ``|mean_w(X_w)_i|^2`` without bias, so the rows are those that matter to the
    average, and not to one worker.

    How it travels: the sketch, ``32 columns / block`` bits an entry, by a dense all-reduce, then the ``k * block``
    values averaged by `inner`. All workers find the same places, so none are sent; nothing grows with the workers.

    Guarantees: the law; ``|x - sent| <= |x|`` with an exact `inner`. Biased: use it inside `error_feedback`. At density
    1 it is dense.

    Args:
      density: The fraction of rows kept, in (0, 1].
      block: Entries in a row, at least 2.
      columns: Of the sketch, at least 1; more estimate better.
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `density` is not in (0, 1], `block` or `columns` is out of its range, or `inner` has a
        memory.

    Example:
      >>> arc_top_k(0.01).expression
      'arc_top_k(0.01)'

    References:
      `An All-Reduce Compatible Top-K Compressor for Communication-Efficient Distributed Learning
      <https://arxiv.org/abs/2510.26709>`_, 2025
    """
    check_density(density)
    check_forgets("arc_top_k", inner, "sends other places then")
    check_block(block)
    check_integer("columns", columns, 1, "the width of the sketch")

    def rows_of(x):
        length = max(1, min(block, x.size))
        return jnp.pad(x.ravel(), (0, -x.size % length)).reshape(-1, length)

    def image(x):
        return jax.ShapeDtypeStruct((kept_of(density, _rows(x, block)), max(1, min(block, x.size))), x.dtype)

    def init(key, params):
        return inner.init(key, jax.tree.map(image, params))

    def reduce(key, updates, state, axis_name):
        leaves, treedef = jax.tree.flatten(updates)
        sketch_key, inner_key = jax.random.split(key)
        rows = [rows_of(x) for x in leaves]
        sketches = jax.tree.leaves(fused_mean([_sketch(sketch_key, one, columns) for one in rows], axis_name))
        places = [largest_in_order(jnp.sum(one**2, axis=1)[None], density)[0] for one in sketches]
        values = [one[at] for one, at in zip(rows, places, strict=True)]
        reduced, state = inner.reduce(inner_key, treedef.unflatten(values), state, axis_name)

        def whole(parts):
            at_home = zip(jax.tree.leaves(parts), places, rows, leaves, strict=True)
            return treedef.unflatten([_put(part, at, one, x) for part, at, one, x in at_home])

        bits = sum_bits([32 * sum(one.size for one in sketches), reduced.bits])
        return Reduced(whole(reduced.mean), whole(reduced.sent), bits), state

    def message_bits(params):
        values = inner.message_bits(jax.tree.map(image, params))
        return jax.tree.map(lambda bits, x: bits + 32 * columns * _rows(x, block), values, params)

    return Compressor(init, reduce, message_bits, **facts_of(inner))


def _rows(x: Any, block: int) -> int:
    return -(-x.size // max(1, min(block, x.size)))


def _sketch(key: jax.Array, rows: jax.Array, columns: int) -> jax.Array:
    gaussian = jax.random.normal(key, (rows.shape[1], columns))
    # Full precision: the places hang on it.
    return jnp.matmul(rows.astype(jnp.float32), gaussian, precision=lax.Precision.HIGHEST)


def _put(values: jax.Array, places: jax.Array, rows: jax.Array, like: jax.Array) -> jax.Array:
    whole = jnp.zeros(rows.shape, like.dtype).at[places].set(values.astype(like.dtype), unique_indices=True)
    return whole.ravel()[: like.size].reshape(like.shape)
