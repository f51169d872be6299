"""Streaming: the drift of one fragment of the parameters is averaged at a time."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from optax import Params

from jaxcompress._compat import axis_size, vary
from jaxcompress.base import AxisName, PerWorker
from jaxcompress.collectives.finiteness import all_finite
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.trees import array_bits, mask, merge_masked
from jaxcompress.periods.anchor_step import anchor_step, without_bits
from jaxcompress.periods.own_steps import own_step, restarted
from jaxcompress.periods.period_checks import (
    check_call,
    check_dtypes,
    check_links,
    check_model_is_whole,
    check_optimizers,
)
from jaxcompress.transform import with_other_keys


class StreamingState(NamedTuple):
    """What `streaming` keeps; the parameters of a training step are the anchor."""

    count: jax.Array  # int32 (): inner steps since the start
    since: jax.Array  # int32 (): inner steps since a flush, 0 while all workers are equal
    applied: PerWorker  # float32 (): 1 if this worker took its last step, 0 if it skipped it
    params: PerWorker  # each worker's own parameters
    inner: PerWorker  # each worker's state of the inner optimizer; never averaged
    outer: tuple  # for each fragment the state of the outer optimizer
    sending: tuple  # for each fragment the state of the averaging link

    @property
    def synchronised(self) -> bool:
        """Whether the last training step made all workers equal; only a flush does."""
        return False


def streaming(
    inner: optax.GradientTransformation,
    outer: optax.GradientTransformation,
    average: optax.GradientTransformation,
    fragments: int,
    axis_name: AxisName = "data",
) -> optax.GradientTransformationExtraArgs:
    """`local_updates` of one fragment of the parameters at a time: Streaming DiLoCo.

    The arrays of the model are divided into fragments of about one size. The anchor x is the same
    on all workers, and each worker w has parameters x_w of its own. A step is::

        x_w = inner(x_w, g_w)

    and an average of fragment p, with the drift ``d_w = x[p] - x_w[p]`` at its start::

        d      = average(d_w)         compressed, with an error memory if it has one
        x[p]   = outer(x[p], d)       d in the place of a gradient
        x_w[p] = a x_w[p] + (1 - a) x[p]      some steps later; a is the mixing

    So an average sends one fragment, and the largest message is that much smaller than with
    `local_updates`. `make_streaming_average` makes the program of an average with the steps during
    which it runs; the steps between two averages are those of `make_local_step`. When each fragment
    is averaged is up to the training loop.

    Skipped steps, weights, non-finite drifts and the flush are as with `local_updates`.

    How it travels: as `average` sends a fragment, and one all-reduce of 4 bytes for the weights.

    Guarantees: x is equal on all workers to the last bit. With one fragment, no steps beside the
    average and no mixing, it is `local_updates`.

    Args:
      inner: The workers' own optimizer, without a `compress`.
      outer: The optimizer of the anchor, such as ``optax.sgd(0.7, momentum=0.9, nesterov=True)``;
        each fragment has a state of its own.
      average: A `compress`; sharded models, whose link is in `on_shards`, are refused.
      fragments: Their number, at least 1 and at most that of the model's arrays. An array is not
        divided: a model with one large array has one large fragment.
      axis_name: The axis of the workers, as for `compress`.

    Returns:
      An Optax transformation. `init_state` places its state on a mesh.

    Raises:
      ValueError: if an argument is of another kind. In `init`, if `inner` or `outer` averages by
        itself, if `average` does not, if `apply_if_all_finite` is in one of them, if the model has
        fewer arrays than `fragments`, or if a parameter has fewer bits than float32. While tracing,
        if the model is sharded, or the state has another number of fragments.

    Example:
      >>> from jaxcompress import compress, error_feedback, int4
      >>> outer = optax.sgd(0.7, momentum=0.9, nesterov=True)
      >>> optimizer = streaming(optax.adamw(4e-4), outer, compress(error_feedback(int4())), 4)

    References:
      Douillard et al., `Streaming DiLoCo with overlapping communication
      <https://arxiv.org/abs/2501.18512>`_, 2025
    """
    check_optimizers(inner, outer, average)
    check_integer("fragments", fragments, 1, "the number of parts that are averaged one at a time")
    inner, outer, average = map(optax.with_extra_args_support, (inner, outer, average))

    def init(params) -> Any:
        check_dtypes(params)
        parts = [mask(params, chosen) for chosen in fragment_masks(params, fragments)]
        own = inner.init(params)
        sending = tuple(with_other_keys(average.init(part), i) for i, part in enumerate(parts))
        moving = tuple(map(outer.init, parts))
        check_links("streaming", own, moving, sending)
        return StreamingState(
            count=jnp.zeros([], jnp.int32),
            since=jnp.zeros([], jnp.int32),
            applied=PerWorker(jnp.ones([], jnp.float32)),
            params=PerWorker(jax.tree.map(jnp.copy, params)),
            inner=PerWorker(own),
            outer=moving,
            sending=sending,
        )

    def update(
        updates, state, params=None, *, weight=None, fragment=None, flush=False, **extra_args
    ):
        axis_size(axis_name)
        check_call("streaming", StreamingState, state, params, weight)
        check_model_is_whole("streaming")
        if len(state.outer) != fragments:
            raise ValueError(
                f"the state was made for {len(state.outer)} fragments, and this streaming has"
                f" {fragments}. Take fragments={len(state.outer)}, or a new init_state."
            )
        still = optax.tree.zeros_like(params)
        state = state._replace(sending=without_bits(state.sending))
        if flush:
            return lax.cond(
                state.since > 0, lambda: flushed(state, params, weight), lambda: (still, state)
            )
        if fragment is not None:
            return averaged_alone(state, params, weight, fragment)
        return still, own_step(inner, updates, state, extra_args)

    def averaged(state, params, weight, fragment):
        """The update of one fragment of the anchor, and the state after it."""
        chosen = fragment_masks(params, fragments)[fragment]
        step, (outer_state, sending) = anchor_step(
            outer,
            average,
            mask(params, chosen),
            mask(state.params.value, chosen),
            (state.outer[fragment], state.sending[fragment]),
            weight,
            axis_name,
        )
        return step, state._replace(
            outer=_with(state.outer, fragment, outer_state),
            sending=_with(state.sending, fragment, sending),
        )

    def averaged_alone(state, params, weight, fragment):
        """The update of the anchor, of which one fragment moves, and the state after it."""
        step, state = averaged(state, params, weight, fragment)
        still = optax.tree.zeros_like(params)
        step = merge_masked(still, step, still)
        anchor = vary(optax.apply_updates(params, step), axis_name)
        return step, state._replace(inner=restarted(inner, state, anchor))

    def flushed(state, params, weight):
        steps = []
        for fragment in range(fragments):
            step, state = averaged(state, params, weight, fragment)
            steps.append(step)
        step = merge_masked(params, *steps)
        own = vary(optax.apply_updates(params, step), axis_name)
        return step, state._replace(
            since=jnp.zeros_like(state.since),
            params=PerWorker(own),
            inner=restarted(inner, state, own),
        )

    return optax.GradientTransformationExtraArgs(init, update)


def fragment_masks(params: Params, fragments: int) -> list[Any]:
    """For each fragment a tree of booleans: the arrays in it, so that sizes are about equal.

    From the largest array to the smallest, each goes to the fragment that is the smallest so far.
    """
    leaves, treedef = jax.tree.flatten(params)
    if fragments > len(leaves):
        raise ValueError(
            f"streaming has {fragments} fragments, and the model has {len(leaves)} arrays: an array"
            f" is not divided. Take fragments={len(leaves)} or fewer."
        )
    sizes, places = [0] * fragments, [0] * len(leaves)
    for number in sorted(range(len(leaves)), key=lambda one: -array_bits(leaves[one])):
        smallest = sizes.index(min(sizes))
        places[number] = smallest
        sizes[smallest] += max(array_bits(leaves[number]), 1)
    return [treedef.unflatten([one == which for one in places]) for which in range(fragments)]


def mixed(state: StreamingState, anchor: Params, fragment: int, mixing: float) -> StreamingState:
    """The state after a worker's own parameters of a fragment moved to the anchor."""

    def mix(own, anchor):
        moved = jax.tree.map(lambda x, y: mixing * x + (1 - mixing) * y, own, anchor)
        return jax.tree.map(lambda x, y: jnp.where(all_finite(own), x, y), moved, anchor)

    own = state.params.value
    chosen = fragment_masks(own, len(state.outer))[fragment]
    moved = mix(mask(own, chosen), mask(anchor, chosen))
    others = mask(own, jax.tree.map(lambda one: not one, chosen))
    # A worker may now be beside the anchor without a step of its own; a flush makes it equal.
    since = jnp.maximum(state.since, 1)
    return state._replace(since=since, params=PerWorker(merge_masked(own, moved, others)))


def _with(parts: tuple, place: int, part: Any) -> tuple:
    """The tuple with another part at this place."""
    return (*parts[:place], part, *parts[place + 1 :])
