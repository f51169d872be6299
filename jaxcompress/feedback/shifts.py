"""Running estimates of the updates: each worker's own shift, and the average of all shifts."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.base import Reduced


def moved_shifts(
    own: Any, average: Any, difference: Any, reduced: Reduced, rate: int | float
) -> tuple[Any, Any]:
    """Both shifts after a step of size `rate` towards ``difference - residual``.

    Where the mean is not finite, neither shift moves. All workers received the same mean, so all
    decide alike. Where one worker's update is not finite and the mean is, that worker sent nothing
    of it, and its own shift stays. (In two phases an owner may leave out what was sent, and in
    `hierarchical` the device that has the NaN; `average` then differs from the mean of `own` there.
    `apply_if_all_finite` skips such a step.)
    """

    def move_own(shift, x, residual, mean):
        sent = x - residual
        return shift + jnp.where(jnp.isfinite(mean) & jnp.isfinite(sent), rate * sent, 0)

    def move_average(shift, mean):
        return shift + jnp.where(jnp.isfinite(mean), rate * mean, 0)

    own = jax.tree.map(move_own, own, difference, reduced.residual, reduced.mean)
    return own, jax.tree.map(move_average, average, reduced.mean)
