"""One collective alone, to be measured: the least time of a scheme that is made of it."""

from collections.abc import Callable

import jax
from jax import lax

from jaxcompress._compat import axis_size
from jaxcompress.base import AxisName

# By the names of `Collective.operation`; each takes one worker's 1-D array.
ALONE: dict[str, Callable[[jax.Array, AxisName], jax.Array]] = {
    "all-reduce": lax.psum,
    "all-gather": lambda x, axis_name: lax.all_gather(x, axis_name, tiled=True),
    "reduce-scatter": lambda x, axis_name: lax.psum_scatter(x, axis_name, tiled=True),
    "all-to-all": lambda x, axis_name: lax.all_to_all(x, axis_name, 0, 0, tiled=True),
    "collective-permute": lambda x, axis_name: lax.ppermute(x, axis_name, _ring(axis_name)),
}


def _ring(axis_name: AxisName) -> list[tuple[int, int]]:
    """From each worker to the next."""
    workers = axis_size(axis_name)
    return [(one, (one + 1) % workers) for one in range(workers)]
