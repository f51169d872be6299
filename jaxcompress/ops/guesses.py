"""Running guesses that all workers can follow: each worker's own, and their average."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.base import Reduced


def moved(own: Any, average: Any, reduced: Reduced, rate: int | float) -> tuple[Any, Any]:
    """Both guesses after a step towards what was sent.

    One infinite step must not stay in a guess, on no worker: what all have received tells all the same. (In one phase.
    In two the mean may be finite where `sent` is not; to drop that here would part `average` from the mean of `own`.)
    """
    part = jax.tree.map(lambda one, all: jnp.where(jnp.isfinite(all), rate * one, 0), reduced.sent, reduced.mean)
    whole = jax.tree.map(lambda all: jnp.where(jnp.isfinite(all), rate * all, 0), reduced.mean)
    return jax.tree.map(jnp.add, own, part), jax.tree.map(jnp.add, average, whole)
