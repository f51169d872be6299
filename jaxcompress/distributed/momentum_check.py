"""Refuses a second momentum after the average: the two would multiply."""

from typing import Any

from jaxcompress.distributed.shards import PerShard
from jaxcompress.feedback.momentum_correction import MomentumCorrectionState
from jaxcompress.transform import CompressState

# What Optax's optimizers call a momentum in their state.
MOMENTUM_FIELDS = ("trace", "mu", "momentum", "ema", "m", "m1", "exp_avg")


def check_one_momentum(state: Any) -> None:
    """ValueError if an optimizer's state has a momentum of its own beside one that is averaged:
    that of `momentum_correction`, or of `onebit_adam` and its relatives.

    The groups of an ``optax.partition`` are optimizers by themselves, each together with what
    stands around them.
    """
    for nodes in _chains(state):
        averaged = [node for node in nodes if _averages_its_momentum(node)]
        second = [
            (node, name)
            for node in nodes
            for name in MOMENTUM_FIELDS
            if hasattr(node, name) and not any(node is one for one in averaged)
        ]
        if averaged and second:
            node, name = second[0]
            raise ValueError(
                f"{type(averaged[0]).__name__} holds a momentum before the average, and"
                f" {type(node).__name__}.{name} is another one after it: the two would multiply."
                " After the average use an optimizer without, as optax.sgd(learning_rate); before"
                " adam, use error_feedback instead of momentum_correction."
            )


def _averages_its_momentum(node: Any) -> bool:
    """Whether the momentum in this state is what `compress` sends."""
    return isinstance(node, MomentumCorrectionState) or (
        any(hasattr(node, name) for name in MOMENTUM_FIELDS)
        and any(isinstance(part, CompressState) for part in node)
    )


def _chains(state: Any) -> list[list[Any]]:
    """The named tuples that an update passes through: one list, or one for each group of the
    partitions in it.
    """
    if isinstance(state, PerShard):
        return _chains(state.value)
    if isinstance(state, CompressState):
        # Its `dense` state is the same momentum, for the arrays that travel dense.
        return _chains(state.inner)
    if hasattr(state, "inner_states"):
        return [chain for group in state.inner_states.values() for chain in _chains(group)] or [[]]
    chains = [[state] if hasattr(state, "_fields") else []]
    for part in (
        state.values()
        if isinstance(state, dict)
        else state
        if isinstance(state, tuple | list)
        else ()
    ):
        chains = [before + after for before in chains for after in _chains(part)]
    return chains
