"""A rule on its own, with measurements from a list, as `adaptive` without dwell runs it."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp

from jaxcompress import Rule, Statistics


def levels_of(rule: Rule, levels: int, *measured: dict[str, float]) -> list[int]:
    """The level before the first step, and after each step with these measurements."""
    return list(_each(rule, levels, measured))


def _each(rule: Rule, levels: int, measured: Sequence[dict[str, float]]) -> Iterator[int]:
    state = rule.init()
    level = jnp.clip(rule.index(state), 0, levels - 1)
    yield int(level)
    for count, values in enumerate(measured):
        assert values.keys() == set(rule.needs)
        statistics = Statistics(
            level, levels, **{name: jnp.float32(x) for name, x in values.items()}
        )
        state = rule.observe(state, statistics, jnp.int32(count))
        level = jnp.clip(rule.index(state), 0, levels - 1)
        yield int(level)
