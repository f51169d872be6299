"""The record of a rule: a small state, how measurements change it, and the level it asks for."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxcompress.base import Call


class Statistics(NamedTuple):
    """What a rule may read after a step: scalars, the same on all workers.

    Those that the rule does not need are None. Energies are squared norms over all arrays that
    `adaptive` compresses.
    """

    level: jax.Array  # int32: the level of this step, 0 for the first compressor
    levels: int  # the number of compressors
    mean: jax.Array | None = None  # float32: |mean|^2
    update: jax.Array | None = None  # float32: |update + memory outside|^2, averaged over workers
    residual: jax.Array | None = None  # float32: |residual|^2, likewise
    sent: jax.Array | None = None  # float32: |update + memory outside - residual|^2, likewise
    loss: jax.Array | None = None  # float32: the training loss of this step, as the caller gave it
    bandwidth: jax.Array | None = None  # float32: bits per second, as the caller gave it last


# What `adaptive` measures itself, and what the caller of the step gives.
MEASURED = ("mean", "update", "residual", "sent")
GIVEN = ("loss", "bandwidth")


class Rule(NamedTuple):
    """Chooses a level; three pure functions of scalars that are the same on all workers."""

    init: Callable[[], Any]  # () -> state, a pytree of arrays ()
    observe: Callable[[Any, Statistics, jax.Array], Any]  # (state, statistics, count) -> state
    index: Callable[[Any], ArrayLike]  # state -> int: the level, clipped to those there are
    needs: tuple[str, ...] = ()  # the fields of `Statistics` that `observe` reads
    call: Call | None = None  # constructor and arguments; gives the repr

    def __repr__(self) -> str:
        return repr(self.call) if self.call else f"Rule(observe={self.observe!r})"


def check_rule(rule: Any) -> None:
    """ValueError unless `rule` is a rule whose state keeps its type and whose index is an int."""
    if not isinstance(rule, Rule):
        hint = f"; call it, with its arguments: {rule!r}" if callable(rule) else f"; got {rule!r}"
        raise ValueError(
            "adaptive begins with a rule, as in adaptive(accordion(every=500), power_sgd(4),"
            f" power_sgd(1)){hint}."
        )
    if unknown := sorted(set(rule.needs) - {*MEASURED, *GIVEN}):
        raise ValueError(
            f"{rule!r} needs {unknown}, and a step measures {', '.join(MEASURED)}, and is given"
            f" {', '.join(GIVEN)}."
        )
    try:
        before = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, rule.init()))
        after = jax.eval_shape(_one_step(rule), before)
        index = jax.eval_shape(lambda state: jnp.asarray(rule.index(state)), before)
    except NameError as error:
        raise ValueError(
            f"{rule!r} reads a mesh axis, and so may choose other levels on other workers, which"
            f" would wait for each other for ever. It reads its state and Statistics only. {error}"
        ) from error
    except Exception as error:  # a user's functions can raise anything
        raise ValueError(
            f"{rule!r} fails, with all statistics that it needs: {type(error).__name__}: {error}"
        ) from error
    if not _same_types(before, after):
        raise ValueError(f"{rule!r}: observe turns a state {before} into {after}, of other types.")
    if index.shape != () or not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(f"{rule!r}: index gives {index}, and a level is one integer.")


def _one_step(rule: Rule) -> Callable[[Any], Any]:
    def observe(state):
        values = {name: jnp.float32(1) for name in rule.needs}
        return rule.observe(state, Statistics(jnp.int32(0), 2, **values), jnp.int32(0))

    return observe


def _same_types(before: Any, after: Any) -> bool:
    def types(tree):
        return jax.tree.map(lambda x: (x.shape, x.dtype), tree)

    return jax.tree.structure(before) == jax.tree.structure(after) and types(before) == types(after)
