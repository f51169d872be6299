"""Clips each worker's gradient before the average."""

import jax
import jax.numpy as jnp
import optax

from jaxcompress._compat import axis_size
from jaxcompress.base import AxisName
from jaxcompress.ops.argument_checks import is_number, shown
from jaxcompress.ops.trees import widened


def clip_by_local_norm(
    max_norm: int | float, axis_name: AxisName = "data"
) -> optax.GradientTransformation:
    """Clips each worker's contribution to the average at the norm ``max_norm / sqrt(workers)``.

    A worker contributes ``g / workers``, so its own gradient g is clipped at the norm
    ``max_norm * sqrt(workers)``. Gradients that are pure noise are orthogonal in expectation: if
    they are clipped like this, their average has the norm `max_norm`. So this is the local form of
    clipping the average at `max_norm`. The common part of the gradients does not average out: the
    more the gradients agree, the larger the norm of the average, up to
    ``max_norm * sqrt(workers)``.

    In the paper, each worker divides its gradient by the number of workers before the sum. Clipping
    the undivided gradient at ``max_norm / sqrt(workers)`` would clip the average at
    ``max_norm / workers``. Put this before `compress`: what enters an error memory or a velocity
    must not be clipped later.

    Args:
      max_norm: The norm of the average of independent noise, above 0 and finite.
      axis_name: The axis of the workers.

    Raises:
      ValueError: if `max_norm` is not above 0.

    Example:
      >>> from jaxcompress import compress, error_feedback, top_k
      >>> link = compress(error_feedback(top_k(0.01)))
      >>> optimizer = optax.chain(clip_by_local_norm(1.0), link, optax.sgd(0.1))

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2017, section 3.2
      and appendix C
    """
    if not is_number(max_norm) or not 0 < max_norm < float("inf"):
        raise ValueError(
            "max_norm is the largest norm of the average, above 0 and finite; got"
            f" {shown(max_norm)}."
        )

    def update(updates, params):
        del params
        # The squares of float16 entries would overflow.
        wide = widened(updates)
        norm, largest = optax.tree.norm(wide), max_norm * axis_size(axis_name) ** 0.5
        return jax.tree.map(
            lambda x: (x * (largest / jnp.maximum(norm, largest))).astype(x.dtype), updates
        )

    return optax.stateless(update)
