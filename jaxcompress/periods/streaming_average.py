"""One program of an average of a fragment, and of the steps during which it runs."""

from collections.abc import Callable
from typing import Any

import optax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from jaxcompress.base import AxisName
from jaxcompress.distributed.donation import JittedStep
from jaxcompress.distributed.placement import (
    expand_worker_axis,
    number_of_workers,
    squeeze_worker_axis,
)
from jaxcompress.distributed.step import on_workers
from jaxcompress.distributed.virtual import AnyMesh
from jaxcompress.ops.argument_checks import check_flag, is_number
from jaxcompress.periods.local_step import step_of_worker
from jaxcompress.periods.period_checks import check_rows, weights_of
from jaxcompress.periods.streaming import StreamingState, mixed


def make_streaming_average(
    loss_fn: Callable,
    optimizer: optax.GradientTransformationExtraArgs,
    mesh: AnyMesh | AbstractMesh,
    axis_name: AxisName = "data",
    mixing: float = 0.5,
    micro_batches: int = 1,
    donate: bool = True,
) -> Callable:
    """A jitted function that averages one fragment of `streaming` while workers take steps.

    The drift is that before the first of the steps, and the workers' own parameters move to the
    anchor after the last. Within the program no step waits for the average, so a compiler may run
    the two side by side.

    Args:
      loss_fn: As for `make_local_step`.
      optimizer: A `streaming`.
      mesh: As for `make_local_step`.
      axis_name: The axis of the workers.
      mixing: a, from 0 to below 1: the share of its own parameters that a worker keeps. 0 drops the
        steps that it took during the average. Without such steps 0 makes workers go on from the
        anchor.
      micro_batches: As for `make_local_step`.
      donate: As for `make_local_step`.

    Returns:
      ``average(params, opt_state, extra, batches, fragment, weight=1.0, bandwidth=None) -> (params,
      opt_state, extra, metrics)``, a jitted function. `batches` is a list with a batch for each of
      the steps, perhaps none, and `metrics` a list of what `make_local_step` returns for each.
      `fragment` is a number from 0; each compiles a program of its own. `params`, `weight` and
      `bandwidth` are as for `make_local_step`.

    Raises:
      ValueError: as `make_local_step`, if `mixing` is outside its range, and while tracing if
        `optimizer` is no `streaming` or has no such fragment, or if `batches` is no list.
    """
    check_flag("donate", donate)
    if not is_number(mixing) or not 0 <= mixing < 1:
        raise ValueError(
            "mixing is the share of its own parameters that a worker keeps, from 0 to below 1; got"
            f" {mixing!r}."
        )
    take_step = step_of_worker(loss_fn, optimizer, mesh, axis_name, micro_batches)
    workers = number_of_workers(mesh, axis_name)

    def average(params, opt_state, extra, batches, fragment, weight=1.0, bandwidth=None):
        check_rows(extra)
        _check_fragment(opt_state, fragment)
        if not isinstance(batches, list):
            is_array = hasattr(batches, "shape")
            got = f"an array {batches.shape}" if is_array else type(batches).__name__
            raise ValueError(
                f"batches is a list with one batch for each of the steps, as in [batch]; got {got}."
            )

        def one_worker(params, opt_state, extra, batches, weight):
            opt_state, extra = squeeze_worker_axis((opt_state, extra))
            found: Any = optimizer.update(
                params, opt_state, params, weight=weight[0], fragment=fragment
            )
            step, opt_state = found
            anchor, sending, metrics = optax.apply_updates(params, step), opt_state.sending, []
            for batch in batches:
                _, opt_state, extra, rows = take_step(
                    params, opt_state, extra.value, batch, weight[0]
                )
                metrics.append(rows)
            opt_state = mixed(opt_state._replace(sending=sending), anchor, fragment, mixing)
            return anchor, *expand_worker_axis((opt_state, extra)), metrics

        state, inputs = (params, opt_state, extra), [batches, weights_of(weight, workers)]
        return on_workers(one_worker, mesh, axis_name, state, inputs, [P(axis_name)], bandwidth)

    return JittedStep(average, donate, static_argnames="fragment")


def _check_fragment(opt_state: object, fragment: object) -> None:
    """ValueError unless the state is that of a `streaming` with this fragment."""
    if not isinstance(opt_state, StreamingState):
        raise ValueError(
            "the optimizer of make_streaming_average is a streaming(…) by itself; got the state"
            f" {type(opt_state).__name__}."
        )
    if isinstance(fragment, bool) or not isinstance(fragment, int):
        raise ValueError(f"fragment is the number of a fragment, an int; got {fragment!r}.")
    if not 0 <= fragment < len(opt_state.outer):
        raise ValueError(
            f"fragment is one of {len(opt_state.outer)}, counted from 0; got {fragment}."
        )
