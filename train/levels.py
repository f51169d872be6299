"""Levels of `adaptive` in a run: what they send, and the rate of the link for its rule."""

from typing import Any

import jax
import numpy as np

import jaxcompress
from train.config import Config
from train.metrics import level_metrics
from train.optimizer import MOMENTUM_SENDERS
from train.processes import Mesh, axes_of
from train.program import BytesPerStep
from train.startup import CHOOSING


def adaptive_states(opt_state: Any) -> list[jaxcompress.AdaptiveState]:
    """Every state of an `adaptive` that is not inside another one."""

    def found(node):
        return isinstance(node, jaxcompress.AdaptiveState)

    return [node for node in jax.tree.leaves(opt_state, is_leaf=found) if found(node)]


def counted_levels(
    config: Config,
    compressor: jaxcompress.Compressor,
    states: list[jaxcompress.AdaptiveState],
) -> int:
    """The levels whose bytes are counted one by one, those of a single `adaptive`; else 0.

    Several have levels of their own, and so have the buckets and shards of one. Optimizers that
    send their momentum begin with dense steps, and other compressors with choices have as many
    branches. Then all steps count as those that send the most.
    """
    calls = [one.call for one in jaxcompress.walk(compressor)]
    choosing = CHOOSING | {jaxcompress.acp_sgd}
    choices = [call for call in calls if call is not None and call.constructor in choosing]
    if len(choices) != 1 or len(states) != 1 or config.optimizer in MOMENTUM_SENDERS:
        return 0
    return 0 if states[0].level.ndim else states[0].steps.size


def first_rate(opt_state: Any, mesh: Mesh) -> dict[str, jax.Array]:
    """What a step is given beside the batch: the rate of the link, if a rule needs it."""
    return {"bandwidth": _placed(np.nan, mesh)} if _needs_rate(opt_state) else {}


def _needs_rate(opt_state: Any) -> bool:
    """Whether a rule asks for the rate of the link, also one inside a level of another."""
    return any(
        "bandwidth" in state.given or _needs_rate(state.inner)
        for state in adaptive_states(opt_state)
    )


class LinkRate:
    """Measures the rate of the link now and then, if a rule needs it."""

    def __init__(self, opt_state: Any, mesh: Mesh, every_steps: int):
        """Measures nothing yet: until then the rate of a restored state counts."""
        self._mesh, self._every = mesh, every_steps
        self._given = first_rate(opt_state, mesh)

    def given(self, step: int, state: Any) -> dict[str, jax.Array]:
        """What this step is given. Measuring waits for the steps before, whose result is `state`.

        It is due by the number of the step alone, so that all processes measure together.
        """
        if self._given and (step - 1) % self._every == 0:
            jax.block_until_ready(state)
            rate = jaxcompress.measure_bandwidth(self._mesh, axes_of(self._mesh))
            self._given = {"bandwidth": _placed(rate, self._mesh)}
        return self._given

    def metrics(self) -> dict[str, float]:
        """The last rate, for the log; empty if none is needed."""
        return {name: float(x) for name, x in self._given.items()}


class SentBytes:
    """What one worker has sent since the start of this part of the run."""

    def __init__(self, sent: BytesPerStep, opt_state: Any):
        """Counts from the state at the start of this part."""
        self._sent = sent
        self._before = self._steps(opt_state)

    def of(self, averages: int, opt_state: Any) -> float:
        """Bytes of so many averages, at the levels that they took.

        A skipped step, which is not counted at any level, sends as the mean of the others.
        """
        steps = self._steps(opt_state) - self._before
        if not self._sent.by_level or not steps.sum():
            return averages * self._sent.peak
        return averages * float(steps @ self._sent.by_level) / steps.sum().item()

    def _steps(self, opt_state: Any) -> np.ndarray:
        """The averages taken at each level."""
        if not self._sent.by_level:
            return np.zeros(0)
        return np.asarray(level_metrics(opt_state)["steps_at_level"], np.float64)


def _placed(rate: float, mesh: Mesh) -> jax.Array:
    return jaxcompress.replicate(np.float32(rate), mesh)
