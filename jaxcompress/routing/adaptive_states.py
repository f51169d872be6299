"""The state of `adaptive`: how it is read for a log, and told what its rule needs."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class AdaptiveState(NamedTuple):
    """The level, the state of its rule, and the state of every compressor."""

    steps: jax.Array  # int32 (levels,): steps taken at each level
    observed: jax.Array  # int32 (): steps that the rule has seen, all but those that are not finite
    level: jax.Array  # int32 (): of the next step
    since: jax.Array  # int32 (): steps taken since the level last changed
    changes: jax.Array  # int32 (): how often it has changed
    # "loss", "bandwidth": what the rule needs from the caller, float32 (); NaN before the first
    given: dict[str, jax.Array]
    rule: Any
    inner: tuple[Any, ...]  # one state per compressor


def given_names(state: Any) -> set[str]:
    """What the rules in a state need from the caller: ``"loss"``, ``"bandwidth"``."""
    return {name for node in _nodes(state) for name in node.given}


def with_given(state: Any, **values: Any) -> Any:
    """`state` with these values, replicated scalars, for the rules that need them.

    None and NaN leave the last one as it is.

    Raises:
      ValueError: if a value that is needed is not one number.
    """
    if not (needed := given_names(state)):
        return state
    values = {name: x for name, x in values.items() if name in needed and x is not None}
    new = {name: _scalar(name, x) for name, x in values.items()}

    def one(node):
        if not _is_adaptive(node):
            return node
        # A state of shards has one scalar for each.
        given = {name: _kept(old, new.get(name)) for name, old in node.given.items()}
        inner = tuple(with_given(part, **values) for part in node.inner)
        return node._replace(given=given, inner=inner)

    return jax.tree.map(one, state, is_leaf=_is_adaptive)


def _kept(old: jax.Array, new: jax.Array | None) -> jax.Array:
    return old if new is None else jnp.where(jnp.isnan(new), old, new)


def _scalar(name: str, value: Any) -> jax.Array:
    try:
        found = jnp.asarray(value, jnp.float32)
    except (TypeError, ValueError):
        found = None
    if found is None or found.ndim:
        raise ValueError(f"{name} is one number for all workers; got {value!r}.")
    return found


def levels(opt_state: Any) -> dict[str, jax.Array]:
    """The levels of the next step in an optimizer's state; empty without an `adaptive`.

    Returns:
      ``level``, float32 (), the mean over all `adaptive` in it, such as one for each bucket;
      ``level_changes``, float32 (), how often these have changed together; and ``steps_at_level``,
      float32 (levels,), the steps taken at each level, the mean over all `adaptive`.

    Example:
      >>> levels(())
      {}
    """
    if not (nodes := _nodes(opt_state)):
        return {}
    # In a sharded model each shard has a level, (shards,), and steps (shards, levels).
    steps = [node.steps.reshape(-1, node.steps.shape[-1]).mean(0) for node in nodes]
    longest = max(one.size for one in steps)
    return {
        "level": jnp.stack([jnp.mean(node.level.astype(jnp.float32)) for node in nodes]).mean(),
        "level_changes": sum(
            (jnp.mean(node.changes.astype(jnp.float32)) for node in nodes), jnp.float32(0)
        ),
        "steps_at_level": jnp.stack([jnp.pad(x, (0, longest - x.size)) for x in steps]).mean(0),
    }


# Asked of every node of a state while a step is traced, so it is not a function of Python.
_is_adaptive = AdaptiveState.__instancecheck__


def _nodes(state: Any) -> list[AdaptiveState]:
    """Every state of an `adaptive`, also those inside others."""
    found = [node for node in jax.tree.leaves(state, is_leaf=_is_adaptive) if _is_adaptive(node)]
    return [one for node in found for one in (node, *_nodes(node.inner))]
