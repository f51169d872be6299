"""Less compression at the start of training."""

from collections.abc import Callable

import jax

from jaxcompress.base import parseable


@parseable
def warmup(steps: int) -> Callable[[jax.Array], jax.Array]:
    """The schedule whose index grows by one every `steps` steps: ``index = count // steps``.

    `switch` stays at its last compressor. So ``switch(warmup(1000), dense(), top_k(0.01))`` is
    dense for the first 1,000 steps. ``switch(warmup(1000), top_k(0.25), top_k(0.04), top_k(0.01))``
    lowers the density in stages.

    Args:
      steps: Steps per stage, from 1 to 2^31 - 1.

    Returns:
      A schedule from the number of steps taken to an index.

    Raises:
      ValueError: if `steps` is not an integer from 1 to 2^31 - 1.

    Example:
      >>> [int(warmup(2)(count)) for count in range(5)]
      [0, 0, 1, 1, 2]

    References:
      Lin et al., `Deep Gradient Compression <https://arxiv.org/abs/1712.01887>`_, 2017
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps < 2**31:
        raise ValueError(
            "steps is the number of steps at each stage, an integer from 1 to 2^31 - 1; got"
            f" {steps!r}."
        )
    return lambda count: count // steps
