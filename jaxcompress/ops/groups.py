"""Entries in groups that share a scale, and scales that can be divided by."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from jaxcompress.ops.checks import check_integer
from jaxcompress.ops.magnitude import largest_magnitude

# XLA divides by multiplying with the reciprocal, and that of more than 2^126 is flushed to zero.
LARGEST = 2.0**126


def in_groups(x: jax.Array, group: int) -> Float[Array, "groups group"]:
    """`x` flattened into rows of `group` entries, the last one filled with zeros; a smaller array is one row."""
    group = max(1, min(group, x.size))
    return jnp.pad(x.ravel(), (0, -x.size % group)).reshape(-1, group)


def maxima(groups: Float32[Array, "groups group"]) -> Float32[Array, "groups 1"]:
    """The largest magnitude of each group, infinite if one of its entries is not finite."""
    return largest_magnitude(groups, axis=1, keepdims=True)


def norms(groups: Float32[Array, "groups group"]) -> Float32[Array, "groups 1"]:
    """The 2-norm of each group; its squares cannot overflow or vanish."""
    largest = maxima(groups)
    unit = groups / jnp.where(largest == 0, 1.0, largest)
    return largest * jnp.sqrt(jnp.sum(unit**2, axis=1, keepdims=True))


def safe_scale(scale: Float32[Array, "groups 1"], steps: int | float) -> Float32[Array, "groups 1"]:
    """Scales whose smallest level, a `steps`-th, is a normal number: others are 0, those beyond `LARGEST` count as it.

    A group with an infinite or NaN entry has scale NaN: no level stands for an infinite entry, and its sign would be
    lost.
    """
    # A group whose levels would lie below the normal range, where devices flush to zero, counts as zero.
    scale = jnp.where(scale < steps * jnp.finfo(jnp.float32).tiny, 0.0, scale)
    return jnp.where(jnp.isfinite(scale), jnp.minimum(scale, LARGEST), jnp.nan)


def shares(groups: Float32[Array, "groups group"], scale: Float32[Array, "groups 1"]) -> Float32[Array, "groups group"]:
    """Every entry as a fraction of its group's scale, from -1 to 1; zeros where that is zero."""
    share = groups / jnp.where(scale == 0, 1.0, scale)
    return jnp.where(scale == 0, 0.0, jnp.clip(share, -1.0, 1.0))


def check_group(group: int) -> None:
    """ValueError unless `group` is a number of entries."""
    check_integer("group", group, 1, "the number of entries that share a scale")
