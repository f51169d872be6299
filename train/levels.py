"""Levels of `adaptive` in a run: what they send, and the rate of the link for its rule."""

from typing import Any

import jax
import numpy as np

import jaxcompress
from train.metrics import level_metrics
from train.processes import Mesh, axes_of
from train.startup import Run


def adaptives(compressor: jaxcompress.Compressor) -> list[dict[str, Any]]:
    """The arguments of every `adaptive` in a compressor."""
    calls = [one.call for one in jaxcompress.walk(compressor)]
    return [call.arguments for call in calls if call and call.constructor is jaxcompress.adaptive]


def number_of_levels(compressor: jaxcompress.Compressor) -> int:
    """The most levels of an `adaptive`; 0 without one."""
    return max((len(one["compressors"]) for one in adaptives(compressor)), default=0)


def first_rate(compressor: jaxcompress.Compressor, mesh: Mesh) -> dict[str, jax.Array]:
    """What a step is given beside the batch: the rate of the link, if a rule needs it."""
    needed = any("bandwidth" in one["rule"].needs for one in adaptives(compressor))
    return {"bandwidth": _placed(np.inf, mesh)} if needed else {}


class LinkRate:
    """Measures the rate of the link now and then, if a rule needs it."""

    def __init__(self, run: Run):
        """Measures nothing yet."""
        self._mesh, self._every = run.mesh, run.config.measure_bandwidth_every_steps
        self._given = first_rate(run.compressor, run.mesh)

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

    def __init__(self, by_level: tuple[float, ...], opt_state: Any):
        """`by_level` is what one average sends at each level; empty without `adaptive`."""
        self._by_level = by_level
        self._before = self._steps(opt_state)

    def of(self, averages: int, peak: float, opt_state: Any) -> float:
        """Bytes of so many averages: `peak` each, or those of their levels.

        Levels are exact for one `adaptive`. Those of several are averaged.
        """
        if not self._by_level:
            return averages * peak
        return float(np.dot(self._steps(opt_state) - self._before, self._by_level))

    def _steps(self, opt_state: Any) -> np.ndarray:
        """The averages taken at each level."""
        if not self._by_level:
            return np.zeros(0)
        return np.asarray(level_metrics(opt_state)["steps_at_level"], np.float64)


def _placed(rate: float, mesh: Mesh) -> jax.Array:
    return jaxcompress.replicate(np.float32(rate), mesh)
