"""The options of a plan, the choice among them, and real steps beside the predicted ones."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax

from jaxcompress.base import Compressor
from jaxcompress.distributed.agreed_numbers import agreed
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.planning.links import Links
from jaxcompress.profiling.collective import Traffic

# Steps whose predictions differ by less count as equally long, and the smaller error decides.
EQUAL = 0.05


class Option(NamedTuple):
    """One compressor, and what a step with it takes."""

    compressor: Compressor
    sent: Traffic  # the collectives of a step
    network_ms: float
    exposed_ms: float  # of it, what does not hide behind the backward pass
    update_ms: float  # compression, decoding and the optimizer
    step_ms: float
    kept: float  # the least of `kept_energy` over kinds of arrays
    state_bytes: int  # the optimizer's state on one worker, memories included


@dataclasses.dataclass(frozen=True)
class Plan:
    """What `plan` found; its text is a table and the choice."""

    workers: int
    gradient_ms: float
    overlap: float
    least_kept: float
    network_share: float
    links: Links
    options: tuple[Option, ...]  # `dense` first
    # compressor -> the step, and its arguments, of which the last is the batch
    _steps: Callable[[Compressor], tuple[Callable, tuple]] = dataclasses.field(repr=False)

    def over(self, links: Links) -> "Plan":
        """The plan for other links, with the work of the devices as it was measured.

        Example: ``plan.over(ideal_links(100e6))``, for a link of 100 Mbit/s.
        """
        hidden = self.overlap * self.gradient_ms
        options = []
        for one in self.options:
            network = links.ms(one.sent.collectives)
            exposed = max(0.0, network - hidden)
            options.append(
                one._replace(
                    network_ms=network,
                    exposed_ms=exposed,
                    step_ms=self.gradient_ms + one.update_ms + exposed,
                )
            )
        return dataclasses.replace(self, links=links, options=tuple(options))

    @property
    def chosen(self) -> Option:
        """The option that keeps most among those whose step is within 5 % of the shortest.

        `dense` is always allowed; others must keep `least_kept`.
        """
        allowed = [one for one in self.options if self._allows(one)]
        shortest = min(one.step_ms for one in allowed)
        near = [one for one in allowed if one.step_ms <= (1 + EQUAL) * shortest]
        return max(near, key=lambda one: one.kept)

    def _allows(self, one: Option) -> bool:
        return one is self.dense or one.kept >= self.least_kept

    @property
    def compressor(self) -> Compressor:
        """The choice; `dense` where nothing is faster."""
        return self.chosen.compressor

    @property
    def dense(self) -> Option:
        """The option that does not compress."""
        return self.options[0]

    @property
    def period(self) -> int:
        """The least H for which averaging in every H-th step takes `network_share` of the time.

        ``H = ceil(sync · (1 - share) / (share · computing))``, at least 1. Computing is the
        gradient and the update of `dense`; sync is what the chosen step takes longer. It is advice
        for `local_updates`, which costs accuracy of its own: the choice of the compressor assumes
        an average in every step.
        """
        computing = self.gradient_ms + self.dense.update_ms
        sync, share = max(0.0, self.chosen.step_ms - computing), self.network_share
        return max(1, math.ceil(sync * (1 - share) / (share * computing)))

    def check(self, options: Sequence[Option] = (), steps: int = 20) -> list[tuple[Option, float]]:
        """Takes real steps, and returns the median milliseconds of each beside its option.

        All processes call it together. Call it before training, because training steps donate the
        parameters. The steps take turns. It changes neither the parameters nor the state of the
        training; it holds a state and two copies of the parameters of each.

        Args:
          options: Some of `options`; without any, `dense` and the choice.
          steps: Timed steps of each, after two that are not timed.

        Raises:
          ValueError: if `steps` is below 1, or the plan is for a mesh without devices.
        """
        check_integer("steps", steps, 1, "the timed steps of each option")
        if not options:
            options = [self.dense] if self.chosen is self.dense else [self.dense, self.chosen]
        running = [self._steps(one.compressor) for one in options]
        times: list[list[float]] = [[] for _ in options]
        for _ in range(2 + steps):
            for place, (step, arguments) in enumerate(running):
                agreed([0.0])  # all processes begin together
                begin = time.perf_counter()
                *held, _ = jax.block_until_ready(step(*arguments))
                times[place].append(1e3 * (time.perf_counter() - begin))
                running[place] = step, (*held, arguments[-1])
        return [
            (option, statistics.median(agreed(each[2:])))
            for option, each in zip(options, times, strict=True)
        ]

    def __str__(self) -> str:
        """A row for each option, the choice, and why."""
        width = max(len(repr(one.compressor)) for one in self.options) + 2
        head = (
            f"{'compressor':<{width}}{'sent B':>14}{'network ms':>12}{'exposed':>9}{'update':>9}"
            f"{'step ms':>10}{'x dense':>9}{'kept':>7}{'state B':>14}"
        )
        rows = [
            f"{one.compressor!r:<{width}}{one.sent.wire_bytes:>14,}{one.network_ms:>12.2f}"
            f"{one.exposed_ms:>9.2f}{one.update_ms:>9.2f}{one.step_ms:>10.2f}"
            f"{self.dense.step_ms / one.step_ms:>9.2f}{one.kept:>7.2f}{one.state_bytes:>14,}"
            for one in self.options
        ]
        about = f"{self.workers} workers; forward and backward pass {self.gradient_ms:.2f} ms"
        return "\n".join([about, head, *rows, self.reason()])

    def reason(self) -> str:
        """The choice in a sentence, and what would be chosen if it kept enough."""
        return self._why() + self._excluded()

    def _why(self) -> str:
        one, dense_ms = self.chosen, self.dense.step_ms
        if one is self.dense:
            if one.network_ms and not one.exposed_ms:
                why = f"its network of {one.network_ms:.2f} ms hides behind the backward pass"
            elif one.exposed_ms <= EQUAL * dense_ms:
                why = f"its network takes {one.exposed_ms:.2f} of {dense_ms:.2f} ms"
            else:
                which = f" that keeps at least {self.least_kept:g}" * bool(self.least_kept)
                why = f"no option{which} is {EQUAL:.0%} faster than its {dense_ms:.2f} ms"
            return f"dense(): do not compress; {why}."
        text = f"{one.compressor!r}: {dense_ms / one.step_ms:.2f} times dense's steps per second."
        if self.period > 1:
            text += (
                f" Compressing and averaging take more than {self.network_share:.0%} of the time;"
                f" with local_updates and a period of {self.period} they take less."
            )
        return text

    def _excluded(self) -> str:
        other = dataclasses.replace(self, least_kept=0.0).chosen
        if other is self.chosen:
            return ""
        return (
            f" {other.compressor!r} is faster, and excluded: a step keeps {other.kept:.3f} of the"
            f" gradient, and least_kept is {self.least_kept:g}."
        )
