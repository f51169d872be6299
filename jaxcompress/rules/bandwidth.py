"""Stronger levels on slower links."""

import itertools

import jax.numpy as jnp

from jaxcompress.base import parseable
from jaxcompress.ops.argument_checks import is_number, shown
from jaxcompress.rules.rule import Rule


@parseable
def bandwidth(*limits: float, margin: float = 0.2) -> Rule:
    """Chooses a level by the rate of the link: one stronger below each of `limits`.

    ``bandwidth(400e6, 50e6)`` takes the first level on links of at least 400 Mbit/s, the third
    below 50 Mbit/s, and the second in between. It returns to a weaker level only above
    ``(1 + margin)`` times a limit, so that noise in the measured rate does not switch to and fro.

    The rate comes from the host: ``step(…, bandwidth=rate)``, or ``update(…, bandwidth=rate)`` of a
    chain. `measure_bandwidth` measures it, and all processes get the same value. It may change in
    every step without a new compilation. Without one, the last given counts; before the first, the
    level is the first. The rule sends nothing.

    Args:
      *limits: Rates in bits per second, above 0, each below the one before.
      margin: How far above a limit the rate must be for a weaker level, at least 0.

    Returns:
      A `Rule` whose state is the level.

    Raises:
      ValueError: if an argument is out of its range, or limits do not fall.

    Example:
      >>> bandwidth(400e6, 50e6)
      bandwidth(400000000.0, 50000000.0)

    References:
      Xin et al., `Kimad: Adaptive Gradient Compression with Bandwidth Awareness
      <https://arxiv.org/abs/2312.08053>`_, 2023, for levels that follow a measured rate
    """
    falling = all(is_number(one) and one > 0 for one in limits) and all(
        first > second for first, second in itertools.pairwise(limits)
    )
    if not limits or not falling:
        raise ValueError(
            "bandwidth takes rates in bits per second that fall, as in bandwidth(400e6, 50e6); got"
            f" {', '.join(map(shown, limits)) or 'none'}."
        )
    if not is_number(margin) or not margin >= 0:
        raise ValueError(f"margin is a fraction of a limit, at least 0; got {shown(margin)}.")

    def below(rate, factor):
        return sum((rate < factor * limit).astype(jnp.int32) for limit in limits)

    def observe(level, statistics, count):
        del level, count
        rate = statistics.bandwidth
        return jnp.clip(statistics.level, below(rate, 1), below(rate, 1 + margin))

    return Rule(
        init=lambda: jnp.int32(0),
        observe=observe,
        index=lambda level: level,
        needs=("bandwidth",),
    )
