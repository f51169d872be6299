"""Clipping before the average, each worker by itself."""

import jax
import jax.numpy as jnp
import optax

from jaxcompress._compat import axis_size
from jaxcompress.base import AxisName


def clip_by_local_norm(max_norm: int | float, axis_name: AxisName = "data") -> optax.GradientTransformation:
    """Clips what each worker adds to the average at the norm ``max_norm / sqrt(workers)``.

    A worker adds ``g / workers``, so its own gradient g keeps a norm of up to ``max_norm * sqrt(workers)``. Such parts
    of gradients that are all noise, orthogonal in expectation, make an average of norm `max_norm`: this is the local
    form of clipping the average there. What gradients have in common does not average out, so the average is longer the
    more they agree, at most ``max_norm * sqrt(workers)``. (The paper's gradients are summed, divided by the workers
    before; at ``max_norm / sqrt(workers)`` of the undivided gradient the average would be clipped at
    ``max_norm / workers``.) It stands before `compress`: what enters an error memory or a velocity is not to be clipped
    later.

    Args:
      max_norm: Of the average of independent noise, above 0 and finite.
      axis_name: The axis of the workers.

    Raises:
      ValueError: if `max_norm` is not above 0.

    Example:
      >>> optimizer = optax.chain(clip_by_local_norm(1.0), optax.sgd(0.1))

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2017, section 3.2 and appendix C
    """
    if isinstance(max_norm, bool) or not isinstance(max_norm, int | float) or not 0 < max_norm < float("inf"):
        raise ValueError(f"max_norm is the largest norm of the average, above 0 and finite; got {max_norm!r}.")

    def update(updates, params):
        del params
        # In float32 at least: the squares of float16 entries would overflow.
        wide = jax.tree.map(lambda x: x.astype(jnp.promote_types(x.dtype, jnp.float32)), updates)
        norm, largest = optax.tree.norm(wide), max_norm * axis_size(axis_name) ** 0.5
        return jax.tree.map(lambda x: (x * (largest / jnp.maximum(norm, largest))).astype(x.dtype), updates)

    return optax.stateless(update)
