"""Turns a compressor into a link of an Optax chain."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import MaskedNode, Updates

from jaxcompress._compat import axis_size
from jaxcompress.base import AxisName, Compressor
from jaxcompress.collectives.dense import fused_mean
from jaxcompress.collectives.finiteness import nan_unless
from jaxcompress.feedback.memories import where_finite, zeros_like_memory
from jaxcompress.ops.trees import (
    array_bits,
    buckets,
    in_dtype_of,
    mask,
    merge_masked,
    tree_bits,
    widened,
)
from jaxcompress.routing.adaptive_states import given_names, with_given
from jaxcompress.transform_checks import (
    check_arguments,
    check_given,
    check_state,
    check_updates,
    is_float0,
)


class CompressState(NamedTuple):
    """What `compress` keeps between steps."""

    key: jax.Array  # typed PRNG key (), the same on every worker; split once a step
    bits: jax.Array  # float32 (): size of all messages of this worker in the last step
    inner: tuple[Any, ...]  # per bucket: the compressor's state, for the compressed arrays
    dense: tuple[Any, ...]  # per bucket: the state of its `dense_transform`, for the other arrays


def compress(
    compressor: Compressor,
    axis_name: AxisName = "data",
    *,
    min_compression_rate: int | float = 2.0,
    bucket_bytes: int | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages updates over the workers of `axis_name`, compressed: a chain's network boundary.

    Links before it work on one worker's updates; links after it see the same updates on all
    workers. It replaces ``lax.pmean(grads, axis_name)``. It must run inside ``jax.shard_map`` or
    ``jax.vmap(..., axis_name=...)``. With ``check_vma=True``, `jax.shard_map` proves that replicas
    cannot drift apart. To clip the average, put ``optax.clip_by_global_norm`` after it.

    The updates must be this worker's own. Those that are summed or averaged already are refused, as
    `jax.grad` of replicated parameters returns inside `jax.shard_map`. Under ``check_vma=False``
    and inside `jax.vmap` JAX does not know which arrays differ between workers, so `compress`
    cannot detect a sum there: take gradients by `local_value_and_grad`.

    An array travels dense unless its message is at least `min_compression_rate` times smaller than
    the array. Dense arrays have no error memory. Those of one dtype and of at most 1 MiB share one
    all-reduce, and larger ones have their own. So ``compress(dense())`` is a plain ``pmean``. If
    the compressor has a momentum, as `momentum_correction` has, the averages of dense arrays get
    the same momentum. Arrays of ``float0``, the gradients of integers, pass unchanged.

    The messages of all arrays travel together, in as many collectives as the scheme has rounds;
    where arrays are added on the way, one above 1 MiB has its own.
    With `bucket_bytes` they travel in groups of arrays, the last by name first (``Block_10`` before
    ``Block_9``). A backward pass computes those gradients first, so a compiler can send one group
    while it computes the next. Each group has its own collectives.

    ``update(..., loss=…, bandwidth=…)`` takes what the rules of `adaptive` need: the training loss,
    averaged over workers, and the rate of the link in bits per second.

    ``update(..., send_dense=True)`` averages all arrays dense in this step and leaves the
    compressor's state unchanged. Optimizers that begin with dense steps use it.

    Guarantees: all that `compressor` guarantees, before the average is rounded to the dtype of the
    updates. No error memory keeps that rounding error of, say, bfloat16 gradients. Updates keep
    their shapes, dtypes and tree.

    Args:
      compressor: Such as ``error_feedback(top_k(0.01))``.
      axis_name: The mesh axis, or axes, to average over.
      min_compression_rate: The least factor by which a message must be smaller than its array; 0
        compresses every array that is real and not empty.
      bucket_bytes: Size of the gradients of one bucket, at least 1; None puts all arrays into one.
        A larger array is a bucket by itself.
      seed: Seed of the random keys, the same on all workers.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: if `compressor` is not a compressor, `axis_name` is not a name,
        `min_compression_rate` or `seed` is negative, or `bucket_bytes` is below 1. While tracing:
        if the axis does not exist, if an update is neither floating nor complex, or if the
        gradients are the same on all workers, since JAX has then summed them already.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> from jaxcompress.feedback.error_feedback import error_feedback
      >>> optimizer = optax.chain(compress(error_feedback(top_k(0.01))), optax.adam(1e-3))
    """
    check_arguments(compressor, axis_name, min_compression_rate, bucket_bytes, seed)
    if not isinstance(axis_name, str) and len(axis_name) == 1:
        (axis_name,) = axis_name
    rate = float(min_compression_rate)
    transform = compressor.dense_transform or optax.identity()

    def init(params):
        # The gradients of integers are float0, which pass unchanged and need no state.
        inexact = jax.tree.map(lambda x: jnp.issubdtype(x.dtype, jnp.inexact), params)
        params = mask(params, inexact)
        key, init_key = jax.random.split(jax.random.key(seed))
        parts = [split(bucket, bucket) for bucket in buckets(params, params, bucket_bytes)]
        keys = jax.random.split(init_key, len(parts))
        states = tuple(compressor.init(keys[i], part) for i, (part, _) in enumerate(parts))
        others = tuple(transform.init(zeros_like_memory(other)) for _, other in parts)
        return CompressState(key, jnp.zeros([], jnp.float32), states, others)

    def update(
        updates,
        state,
        params=None,
        *,
        step_applied=None,
        send_dense=False,
        loss=None,
        bandwidth=None,
        **extra_args,
    ):
        del extra_args
        axis_size(axis_name)
        real = check_updates(updates, axis_name)
        # From `apply_if_all_finite`: earlier links may have replaced the NaN of a skipped step.
        if step_applied is not None:
            updates = nan_unless(step_applied, updates)
        like = updates if params is None else params
        parts, likes = (
            buckets(mask(x, real), mask(like, real), bucket_bytes) for x in (updates, like)
        )
        if send_dense:
            means, bits = [fused_mean(part, axis_name) for part in parts], tree_bits(parts)
            state = state._replace(bits=jnp.asarray(bits, jnp.float32))
            return _as_updates(means, updates), state
        expected = jax.eval_shape(init, mask(like, real))
        check_state(state, expected)
        if needed := given_names(state):
            check_given(needed, axis_name, loss=loss, bandwidth=bandwidth)
            state = with_given(state, loss=loss, bandwidth=bandwidth)
        key, step_key = jax.random.split(state.key)
        keys = jax.random.split(step_key, len(parts))
        each = zip(keys, parts, likes, state.inner, state.dense, strict=True)
        means, bits, states, others = zip(*(one_bucket(*one) for one in each), strict=True)
        mean = _as_updates([tree for pair in means for tree in pair], updates)
        return mean, CompressState(key, jnp.asarray(sum(bits)), states, others)

    def one_bucket(key, part, like, state, dense_state):
        """Both averages of one bucket, their bits, and their new states."""
        compressed, other = split(part, like)
        reduced, state = compressor.reduce(key, compressed, state, axis_name)
        # A transformation may keep a running sum.
        average = widened(fused_mean(other, axis_name))
        average, new = transform.update(average, dense_state)
        new = jax.tree.map(where_finite, new, dense_state)
        bits = jnp.asarray(reduced.bits, jnp.float32) + float(tree_bits(other))
        return (reduced.mean, average), bits, state, new

    def split(tree, like):
        """The arrays worth compressing, judged by the arrays of `like`, and the others."""
        real = jax.tree.map(lambda x: jnp.issubdtype(x.dtype, jnp.floating) and x.size > 0, like)
        candidates = mask(like, real)
        bits = compressor.message_bits(candidates)
        small = jax.tree.map(lambda x, n: bool(n * rate <= array_bits(x)), candidates, bits)
        pays = jax.tree.map(lambda x: x is True, merge_masked(like, small), is_leaf=_is_masked)
        return mask(tree, pays), mask(tree, jax.tree.map(lambda pays: not pays, pays))

    return optax.GradientTransformationExtraArgs(init, update)


def with_other_keys(state: Any, number: int | jax.Array) -> Any:
    """The first state of a link with random keys of its own, which depend on `number`.

    Links that run beside each other in a step, for parts of a model, would otherwise draw the same
    random numbers.
    """

    def of_one(node):
        if not isinstance(node, CompressState):
            return node
        return node._replace(key=jax.random.fold_in(node.key, number))

    return jax.tree.map(of_one, state, is_leaf=lambda node: isinstance(node, CompressState))


def _as_updates(parts: list[Any], updates: Updates) -> Updates:
    """One tree from those of all parts, in the dtypes of `updates`, with its own float0 arrays."""
    mean = merge_masked(updates, *parts, mask(updates, jax.tree.map(is_float0, updates)))
    return jax.tree.map(in_dtype_of, mean, updates)


def _is_masked(x: Any) -> bool:
    return isinstance(x, MaskedNode)
