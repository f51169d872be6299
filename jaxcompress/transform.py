"""From a compressor to a link of an Optax chain."""

import numbers
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import Updates

from jaxcompress._compat import axis_size, is_varying
from jaxcompress.base import AxisName, Compressor, Reduced
from jaxcompress.collectives.agreement import spoilt_unless
from jaxcompress.collectives.dense import dense
from jaxcompress.ops.buckets import buckets
from jaxcompress.ops.trees import array_bits, join, only, path_text


class CompressState(NamedTuple):
    """What `compress` keeps between steps."""

    key: jax.Array  # typed PRNG key (), the same on every worker; split once a step
    bits: jax.Array  # float32 (): size of this worker's messages in the last step, dense ones included
    inner: tuple[Any, ...]  # state of the compressor for the compressed arrays of each bucket
    otherwise: tuple[Any, ...]  # state of what averages the other arrays of each bucket


def compress(
    compressor: Compressor,
    axis_name: AxisName = "data",
    *,
    min_compression_rate: int | float = 2.0,
    bucket_bytes: int | None = None,
    max_norm: int | float | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages updates over the workers of `axis_name`, compressed: the network boundary of an Optax chain.

    What stands before it in the chain is local to a worker, what stands after it is the same on all of them. It takes
    the place of ``lax.pmean(grads, axis_name)``, and must run inside ``jax.shard_map`` (with ``check_vma=True``, which
    proves that replicas cannot drift apart) or ``jax.vmap(..., axis_name=...)``.

    An array whose message, judged by itself, would not be `min_compression_rate` times smaller than the array travels
    dense, and all such arrays share one all-reduce; they have no error memory. So ``compress(dense())`` is a plain
    ``pmean``. (A local momentum, as of `momentum_correction`, is theirs too.)

    The messages of all arrays travel together, in as many collectives as the scheme has rounds. With `bucket_bytes`
    they travel in groups of arrays, the last ones by name first (``Block_10`` before ``Block_9``), whose gradients a
    backward pass has first: so that a compiler can move a group while the next is computed. Each has collectives, and a
    dense all-reduce, of its own.

    Guarantees: all that `compressor` guarantees, before the average is rounded to the dtype of the updates: for
    bfloat16 gradients that rounding is not remembered. Updates keep their shapes, dtypes and tree.

    Args:
      compressor: Such as ``error_feedback(top_k(0.01))``.
      axis_name: The mesh axis, or axes, to average over.
      min_compression_rate: How many times smaller a message has to be, at least; 0 compresses every array.
      bucket_bytes: Size of the gradients of one bucket, at least 1; None puts all arrays into one. A larger array is a
        bucket by itself.
      max_norm: The average is scaled down to this global norm, above 0, where it is larger, as by
        ``optax.clip_by_global_norm`` after `compress`; but the norm of what travels as orthonormal factors is that of
        the small factor, ``|P Q^T| = |Q|``, so that no pass over those arrays is needed.
      seed: Of the random keys, the same on all workers.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: if `compressor` is not one, `axis_name` no name, `min_compression_rate` negative, `bucket_bytes`
        below 1 or `max_norm` not above 0; while tracing, if there is no such axis, or if the gradients are the same on
        all workers: then JAX has summed them already.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> from jaxcompress.feedback.error_feedback import error_feedback
      >>> optimizer = optax.chain(compress(error_feedback(top_k(0.01))), optax.adam(1e-3))
    """
    if not isinstance(compressor, Compressor):
        hint = f"; jaxcompress.parse({compressor!r}) makes one" if isinstance(compressor, str) else ""
        hint = "; call it, with its arguments" if callable(compressor) else hint
        raise ValueError(f"compress takes a compressor, such as error_feedback(top_k(0.01)); got {compressor!r}{hint}.")
    names = (axis_name,) if isinstance(axis_name, str) else axis_name
    if not isinstance(names, tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"axis_name is the mesh axis to average over, a text or a tuple of them; got {axis_name!r}.")
    if not _is_number(min_compression_rate) or not min_compression_rate >= 0:
        raise ValueError(f"min_compression_rate is a ratio of sizes, at least 0; got {min_compression_rate!r}.")
    if bucket_bytes is not None and (not _is_number(bucket_bytes) or not bucket_bytes >= 1):
        raise ValueError(f"bucket_bytes is the size of the gradients of one bucket, at least 1; got {bucket_bytes!r}.")
    if max_norm is not None and (not _is_number(max_norm) or not 0 < max_norm < float("inf")):
        raise ValueError(f"max_norm is the largest global norm of the average, above 0 and finite; got {max_norm!r}.")

    rate, otherwise = float(min_compression_rate), compressor.otherwise or dense()

    def init(params):
        key, init_key = jax.random.split(jax.random.key(seed))
        parts = [split(bucket, bucket) for bucket in buckets(params, params, bucket_bytes)]
        keys = jax.random.split(init_key, len(parts))
        states = tuple(compressor.init(keys[i], part) for i, (part, _) in enumerate(parts))
        others = tuple(otherwise.init(keys[i], rest) for i, (_, rest) in enumerate(parts))
        return CompressState(key, jnp.zeros([], jnp.float32), states, others)

    def update(updates, state, params=None, **extra_args):
        axis_size(axis_name)
        _check_local(updates, axis_name)
        # Told by `transaction`; what stood before may have made the NaN of a bad step finite.
        if (applied := extra_args.get("step_applied")) is not None:
            updates = spoilt_unless(applied, updates)
        key, step_key = jax.random.split(state.key)
        like = updates if params is None else params
        expected = jax.eval_shape(init, like)
        _check_state(state.inner, expected.inner)
        _check_state(state.otherwise, expected.otherwise)
        parts, likes = (buckets(tree, like, bucket_bytes) for tree in (updates, like))
        keys = jax.random.split(step_key, len(parts))
        rounds = [one_bucket(*one) for one in zip(keys, parts, likes, state.inner, state.otherwise, strict=True)]
        reduced = [one for pair, _, _ in rounds for one in pair]
        mean = join(updates, *(one.mean for one in reduced))
        mean = mean if max_norm is None else _clipped(mean, reduced, max_norm)
        mean = jax.tree.map(lambda m, x: m.astype(x.dtype), mean, updates)
        bits = sum((jnp.asarray(one.bits, jnp.float32) for one in reduced), jnp.float32(0))
        _, states, others = zip(*rounds, strict=True)
        return mean, CompressState(key, bits, states, others)

    def one_bucket(key, part, like, state, other_state):
        """Both reductions of one bucket, and their new states."""
        compressed, rest = split(part, like)
        reduced, state = compressor.reduce(key, compressed, state, axis_name)
        other, other_state = otherwise.reduce(key, rest, other_state, axis_name)
        return (reduced, other), state, other_state

    def split(tree, like):
        """The arrays that are worth compressing, judged by those of `like`, and the rest."""
        real = jax.tree.map(lambda x: jnp.issubdtype(x.dtype, jnp.floating) and x.size > 0, like)
        bits = compressor.message_bits(only(like, real))
        pays = join(like, jax.tree.map(lambda x, bits: bool(bits * rate <= array_bits(x)), only(like, real), bits))
        pays = jax.tree.map(lambda pays: pays is True, pays, is_leaf=lambda x: isinstance(x, optax.MaskedNode))
        return only(tree, pays), only(tree, jax.tree.map(lambda pays: not pays, pays))

    return optax.GradientTransformationExtraArgs(init, update)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _clipped(mean: Updates, reduced: list[Reduced], max_norm: int | float) -> Updates:
    """`mean`, which is made of these, scaled down to this global norm where it is larger."""
    norm = jnp.sqrt(sum((jnp.asarray(one.energy()) for one in reduced), jnp.float32(0)))
    return jax.tree.map(lambda m: m * (max_norm / jnp.maximum(norm, max_norm)), mean)


def _check_state(state: Any, expected: Any) -> None:
    """ValueError if the compressor's state is not that of one worker, or not of these parameters."""
    found = [(path_text(path), x.shape) for path, x in jax.tree_util.tree_leaves_with_path(state)]
    wanted = [(path_text(path), x.shape) for path, x in jax.tree_util.tree_leaves_with_path(expected)]
    if [path for path, _ in found] != [path for path, _ in wanted] or len(state) != len(expected):
        raise ValueError(
            f"the state of compress has {len(found)} arrays in {len(state)} buckets, and these updates need "
            f"{len(wanted)} in {len(expected)}{_first_difference(found, wanted)}: it was made for other parameters, "
            f"another compressor, or another min_compression_rate or bucket_bytes. Make a new one with init_state."
        )
    for (path, shape), (_, needed) in zip(found, wanted, strict=True):
        if shape != needed:
            raise ValueError(
                f"the state of compress does not fit these updates: it has {path!r} of shape {shape}, where one worker "
                f"needs {needed}. Outside a step the parts of one worker stand in rows, (workers, …), as init_state "
                f"makes them; in a step of your own, opt_state = own_part(opt_state) comes before the update and "
                f"as_block(opt_state) after it. With other parameters, make a new state."
            )


def _first_difference(found: list[tuple[str, Any]], wanted: list[tuple[str, Any]]) -> str:
    pairs = ((one, other) for (one, _), (other, _) in zip(found, wanted, strict=False) if one != other)
    return next((f", {one!r} where {other!r} belongs" for one, other in pairs), "")


def _check_local(updates: Updates, axis_name: AxisName) -> None:
    """ValueError if some gradient is known to be the same on all workers."""
    for path, x in jax.tree_util.tree_leaves_with_path(updates):
        if not is_varying(x, axis_name):
            raise ValueError(
                f"the gradient of {path_text(path)!r} does not vary over the axis {axis_name!r}: it is already "
                f"averaged or summed. Inside shard_map jax.grad sums gradients of replicated parameters silently. Take "
                f"local ones with jaxcompress.local_value_and_grad, or mark the parameters before differentiating: "
                f"jax.lax.pcast(params, {axis_name!r}, to='varying'). A chain averages once, so it holds one compress "
                f"and no pmean before it. optax.MultiSteps around compress ends here too: micro_batches of "
                f"make_train_step accumulates."
            )
