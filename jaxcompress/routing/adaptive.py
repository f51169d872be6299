"""A compressor whose level follows what was measured in earlier steps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxcompress.base import AxisName, Compressor, parseable
from jaxcompress.collectives.dense import fused_mean
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.trees import energy
from jaxcompress.routing.branches import as_branches, check_branches, first_states, reduce_by
from jaxcompress.rules.rule import GIVEN, Rule, Statistics, check_rule


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


@parseable
def adaptive(rule: Rule, *compressors: Compressor, dwell: int = 1) -> Compressor:
    """Averages by ``compressors[level]``, where `rule` chooses the level from earlier steps.

    The first compressor is the weakest, and the last the strongest. All are compiled into one step;
    only the chosen one runs, and only its state changes. Put the memory outside,
    ``error_feedback(adaptive(...))``, so that no residual stays in an unused compressor.

    After each step the rule sees ``|mean|^2`` and energies of updates and residuals, averaged over
    workers. If it asks for another level and the present one was held for `dwell` steps, the level
    changes. The rule does not see a step whose measurements are not finite. Steps are those that
    average: with a period of 30, ``every=10`` is 300 training steps.

    How it travels: as the chosen compressor, and one all-reduce of 4 bytes for each energy that the
    rule needs; they are in its docstring. `bits` depends on the step and is float32. For
    `min_compression_rate` of `compress`, the smallest message of all compressors counts.

    With buckets or in a `partition` each part has a level of its own. In a sharded model each
    device chooses for its shards, together with the devices of other workers that hold the same.
    Put it around `hierarchical`, not inside: ``adaptive(rule, hierarchical(…), hierarchical(…))``.

    Args:
      rule: `accordion`, `gradient_norm`, `gain`, `bandwidth`, `accuracy`, `schedule`, or your own
        `Rule`.
      *compressors: At least one, from the weakest to the strongest.
      dwell: The least number of steps between two changes of the level, at least 1.

    Returns:
      A `Compressor` with the states of all. `levels` reads the level from an optimizer's state.

    Raises:
      ValueError: if `rule` is not a rule, there is no compressor, a compressor has a momentum, or
        `dwell` is below 1; while tracing, if the rule needs the loss and the step does not give it.

    Example:
      >>> from jaxcompress.compressors.low_rank.power_sgd import power_sgd
      >>> from jaxcompress.rules.accordion import accordion
      >>> adaptive(accordion(every=500), power_sgd(4), power_sgd(1))
      adaptive(accordion(every=500), power_sgd(4), power_sgd(1))
    """
    check_rule(rule)
    check_branches("adaptive", "rule", compressors)
    check_integer("dwell", dwell, 1, "the least number of steps between two changes")
    last = len(compressors) - 1

    def clipped(index):
        return jnp.clip(jnp.asarray(index, jnp.int32), 0, last)

    def init(key, params):
        state = jax.tree.map(jnp.asarray, rule.init())
        given = {name: jnp.float32(jnp.nan) for name in rule.needs if name in GIVEN}
        observed, since, changes = (jnp.zeros([], jnp.int32) for _ in range(3))
        steps, level = jnp.zeros(len(compressors), jnp.int32), clipped(rule.index(state))
        inner = first_states(compressors, key, params)
        return AdaptiveState(steps, observed, level, since, changes, given, state, inner)

    def reduce(key, updates, state, axis_name):
        reduced, inner = reduce_by(compressors, state.level, key, updates, state.inner, axis_name)
        energies = _energies(rule.needs, updates, reduced.residual)
        bits = reduced.bits + jnp.float32(32 * len(energies))
        found = {**_averaged(energies, axis_name), **state.given}
        if "mean" in rule.needs:
            found["mean"] = energy(reduced.mean)
        observed = rule.observe(
            state.rule, Statistics(state.level, len(compressors), **found), state.observed
        )
        known = _known(found)
        observed = jax.tree.map(lambda x, y: jnp.where(known, x, y), observed, state.rule)
        level = clipped(rule.index(observed))
        since = jnp.asarray(optax.safe_increment(state.since))
        changes = (level != state.level) & (since >= dwell)
        return reduced._replace(bits=bits), AdaptiveState(
            steps=state.steps.at[state.level].add(1),
            observed=state.observed + known.astype(jnp.int32),
            level=jnp.where(changes, level, state.level),
            since=jnp.where(changes, 0, since),
            changes=state.changes + changes.astype(jnp.int32),
            given=state.given,
            rule=observed,
            inner=inner,
        )

    return as_branches(compressors, init, reduce)


def _energies(needs: tuple[str, ...], updates: Any, residual: Any) -> dict[str, jax.Array]:
    """This worker's own energies, of those that a rule needs."""
    compute = {
        "update": lambda: energy(updates),
        "residual": lambda: energy(residual),
        "sent": lambda: energy(jax.tree.map(jnp.subtract, updates, residual)),
    }
    return {name: one() for name, one in compute.items() if name in needs}


def _averaged(energies: Any, axis_name: AxisName) -> Any:
    """The means over workers, by one all-reduce; none without energies."""
    return fused_mean(energies, axis_name) if energies else {}


def _known(found: dict[str, jax.Array]) -> jax.Array:
    """Whether all that a rule reads is finite; a link that is too fast to measure is infinite."""
    finite = [
        ~jnp.isnan(x) if name == "bandwidth" else jnp.isfinite(x) for name, x in found.items()
    ]
    return jnp.all(jnp.stack(finite)) if finite else jnp.bool_(True)


def given_names(state: Any) -> set[str]:
    """What the rules in a state need from the caller: ``"loss"``, ``"bandwidth"``."""
    return {name for node in _nodes(state) for name in node.given}


def with_given(state: Any, **values: Any) -> Any:
    """`state` with these values, replicated scalars, for the rules that need them.

    None and NaN leave the last one as it is.

    Raises:
      ValueError: if a value that is needed is not one number.
    """
    needed = given_names(state)
    values = {name: x for name, x in values.items() if name in needed and x is not None}
    new = {name: _scalar(name, x) for name, x in values.items()}

    def one(node):
        if not isinstance(node, AdaptiveState):
            return node
        # A state of shards has one scalar for each.
        given = {
            name: jnp.where(jnp.isnan(x := new.get(name, old)), old, x)
            for name, old in node.given.items()
        }
        inner = tuple(with_given(part, **values) for part in node.inner)
        return node._replace(given=given, inner=inner)

    return jax.tree.map(one, state, is_leaf=_is_adaptive)


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


def _is_adaptive(node: Any) -> bool:
    return isinstance(node, AdaptiveState)


def _nodes(state: Any) -> list[AdaptiveState]:
    """Every state of an `adaptive`, also those inside others."""
    found = [node for node in jax.tree.leaves(state, is_leaf=_is_adaptive) if _is_adaptive(node)]
    return [one for node in found for one in (node, *_nodes(node.inner))]
