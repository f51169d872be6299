"""Keeps whole attention heads."""

import jax.numpy as jnp

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse_rows import sparse_rows
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.selection import check_density


@parseable
def head_top_k(density: float, heads: int, inner: Compressor = dense()) -> Compressor:
    """Keeps the ``k = max(1, round(density * heads))`` largest heads of each array, by 2-norm.

    The heads of an array are its slices along the first axis whose length is `heads`. In Flax's
    attention the kernels are (width, heads, head width) for queries, keys and values, and (heads,
    head width, width) for the output. An array without such an axis is one head, which `inner`
    sends whole. Use labels to compress only the arrays of an attention layer: ``partition({"heads":
    head_top_k(0.25, heads=8), "rest": …}, by_path({"*/query/*": "heads", …}))``.

    How it travels: the values of k heads by `inner`, and k indices of ``ceil(log2(heads))`` bits.

    Guarantees: ``|residual|^2 <= (1 - k/heads) |x|^2`` with an exact `inner`. Biased: use it inside
    `error_feedback`. At density 1 it is dense.

    Args:
      density: The fraction of heads kept, in (0, 1].
      heads: The number of heads, at least 2.
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `density` is not in (0, 1], `heads` is not an integer of at least 2, or `inner`
        has no codec.

    Example:
      >>> head_top_k(0.25, heads=8)
      head_top_k(0.25, 8)
    """
    check_density(density)
    check_integer("heads", heads, 2, "the number of attention heads")

    def split(x):
        if heads not in x.shape:
            return x.reshape(1, x.size)
        return jnp.moveaxis(x, x.shape.index(heads), 0).reshape(heads, x.size // heads)

    def join(rows, like):
        if heads not in like.shape:
            return rows.reshape(like.shape)
        axis = like.shape.index(heads)
        rest = like.shape[:axis] + like.shape[axis + 1 :]
        return jnp.moveaxis(rows.reshape(heads, *rest), 0, axis)

    return sparse_rows(split, join, density, inner)
