"""Whether all workers have finite values: one small all-reduce."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress._compat import vary
from jaxcompress.base import AxisName
from jaxcompress.ops.quantization import is_finite


def finite_everywhere(tree: Any, axis_name: AxisName) -> jax.Array:
    """Whether every entry of every worker's `tree` is finite: a bool (), equal on all workers."""
    return lax.psum(vary(jnp.float32(~all_finite(tree)), axis_name), axis_name) == 0


def all_finite(tree: Any) -> jax.Array:
    """Whether every entry of the floating and complex arrays of `tree` is finite: a bool ()."""
    inexact = [x for x in jax.tree.leaves(tree) if _is_inexact(x) and x.size > 0]
    found = [is_finite(x) for x in inexact]
    return jnp.all(jnp.stack(found)) if found else jnp.bool_(True)


def nan_unless(applied: jax.Array, tree: Any) -> Any:
    """`tree` if the step is taken; else NaN in floating and complex arrays: no memory keeps it."""
    return jax.tree.map(lambda x: jnp.where(applied, x, jnp.nan) if _is_inexact(x) else x, tree)


def _is_inexact(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)
