"""A compressor whose level follows what was measured in earlier steps."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxcompress.base import AxisName, Compressor, parseable
from jaxcompress.collectives.dense import fused_mean
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.trees import energy
from jaxcompress.routing.adaptive_states import AdaptiveState
from jaxcompress.routing.branches import as_branches, check_branches, first_states, reduce_by
from jaxcompress.rules.rule import GIVEN, Rule, Statistics, check_rule


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

    How it travels: as the chosen compressor, and one all-reduce of 4 bytes for each energy of
    updates or residuals that the rule reads; its docstring says which. `bits` depends on the step
    and is float32. For `min_compression_rate` of `compress`, the smallest message of all
    compressors counts.

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
        a memory of which the rule would see no residual, or `dwell` is below 1; while tracing, if
        the rule needs the loss and the step does not give it.

    Example:
      >>> from jaxcompress.compressors.low_rank.power_sgd import power_sgd
      >>> from jaxcompress.rules.accordion import accordion
      >>> adaptive(accordion(every=500), power_sgd(4), power_sgd(1))
      adaptive(accordion(every=500), power_sgd(4), power_sgd(1))
    """
    check_rule(rule)
    check_branches("adaptive", "rule", compressors)
    inside = [one for one in compressors if one.has_memory]
    if inside and {"residual", "sent"} & set(rule.needs):
        raise ValueError(
            f"{rule!r} reads residuals, and {inside[0]!r} keeps its own in a memory. Put the memory"
            " outside: error_feedback(adaptive(…))."
        )
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
