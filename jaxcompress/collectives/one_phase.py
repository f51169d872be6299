"""Sends every worker's message to all others: one all-gather, whose bytes grow with the workers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from optax import Updates

from jaxcompress._compat import all_gather, axis_size, vary_like
from jaxcompress.base import AxisName, Codec, Compressor, Reduced, parseable
from jaxcompress.ops.codecs import codec_bits, codec_of, encode
from jaxcompress.ops.serialization import WORD_BYTES, from_words, to_words, words_in
from jaxcompress.ops.sparse_array import add_to, subtract_from, to_dense


@parseable
def one_phase(inner: Compressor) -> Compressor:
    """Sends `inner`'s messages by one all-gather, for any number of workers.

    ``mean = (1/W) sum_w decode(message_w)`` and ``residual = x - decode(own message)``. Without
    `one_phase`, a codec travels in two phases if that sends less than half as much: see
    `two_phase`.

    How it travels: the messages of all arrays in one buffer and one all-gather. A ring forwards
    each message of B bytes to ``W - 1`` others, so a worker sends ``(W - 1) B``.

    Guarantees: the law of `Reduced` up to rounding, and all that `inner` guarantees.

    Args:
      inner: Any compressor with a codec: ``qsgd(4)``, ``block_top_k(0.01)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `inner` has no codec.

    Example:
      >>> from jaxcompress.compressors.quantisers.qsgd import qsgd
      >>> one_phase(qsgd(4))
      one_phase(qsgd(4))
    """
    codec = codec_of("one_phase", inner, "one_phase(qsgd(8))")

    def reduce(key, updates, state, axis_name):
        return all_gather_mean(codec, key, updates, axis_name), state

    def message_bits(params):
        return jax.tree.map(lambda x: codec_bits(codec, x), params)

    return inner._replace(init=lambda key, params: (), reduce=reduce, message_bits=message_bits)


def all_gather_mean(codec: Codec, key: jax.Array, updates: Updates, axis_name: AxisName) -> Reduced:
    """Encodes, gathers, decodes and averages, with a separate key per worker and array."""
    leaves, treedef = jax.tree.flatten(updates)
    batches = _batches(codec, leaves)
    own_key = jax.random.fold_in(key, lax.axis_index(axis_name))
    keys = jax.random.split(own_key, (max(1, len(leaves)), 2))
    messages = [_encode(codec, keys, batch, leaves) for batch in batches]
    words = to_words(messages)

    own = _decode(codec, messages, batches, leaves)
    mean = _mean(codec, words, messages, batches, leaves, axis_name)
    residual = [subtract_from(x, decoded) for x, decoded in zip(leaves, own, strict=True)]
    bits = 8 * WORD_BYTES * words.size
    return Reduced(treedef.unflatten(mean), treedef.unflatten(residual), bits)


def all_gather_bytes(codec: Codec, updates: Updates, workers: int) -> int:
    """The bytes that one worker sends in a ring, from shapes alone."""
    messages = jax.eval_shape(
        lambda tree: [encode(codec, jax.random.key(0), x) for x in jax.tree.leaves(tree)], updates
    )
    return (workers - 1) * WORD_BYTES * words_in(messages)


def _batches(codec: Codec, leaves: Sequence[Any]) -> list[list[int]]:
    """Positions of the arrays to encode together: with a selection, all arrays of one shape."""
    alike: dict[Any, list[int]] = {}
    for i, x in enumerate(leaves):
        alike.setdefault((x.shape, x.dtype) if codec.select else i, []).append(i)
    return list(alike.values())


def _encode(codec: Codec, keys: jax.Array, batch: list[int], leaves: list) -> Any:
    """The messages of a batch, stacked along a first axis."""
    select = codec.select or (lambda key, x: x)
    each = [select(keys[i, 0], leaves[i]) for i in batch]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
    return jax.vmap(codec.encode)(keys[jnp.array(batch), 1], stacked)


def _decode(codec: Codec, messages: list, batches: list[list[int]], likes: list) -> list[Any]:
    """The decoded arrays, sparse or dense, in the order of `likes`."""
    found = {}
    for batch, message in zip(batches, messages, strict=True):
        decoded = jax.vmap(lambda one, like=likes[batch[0]]: codec.decode(one, like))(message)
        found |= {
            i: jax.tree.map(lambda x, row=row: x[row], decoded) for row, i in enumerate(batch)
        }
    return [found[i] for i in range(len(likes))]


def _mean(
    codec: Codec,
    words: jax.Array,
    messages: list,
    batches: list[list[int]],
    likes: list,
    axis_name: AxisName,
) -> list[jax.Array]:
    """The average of all workers' decoded messages, added in at least float32.

    It adds one worker after the other, since indices are unique only within a message. A
    scatter-add with collisions has no fixed order on GPUs, and replicas would drift apart.
    """
    workers = axis_size(axis_name)
    wide = [jax.ShapeDtypeStruct(x.shape, jnp.promote_types(x.dtype, jnp.float32)) for x in likes]
    if not words.size:
        return [jnp.zeros(x.shape, x.dtype) for x in likes]
    everyone = all_gather(words, axis_name)

    def of_worker(worker):
        return _decode(codec, from_words(everyone[worker], messages), batches, likes)

    def add_one(worker, totals):
        pairs = zip(totals, of_worker(worker), strict=True)
        return [add_to(total, decoded, 1 / workers) for total, decoded in pairs]

    # The totals start as the first worker's message, which saves a pass over zeros.
    first = [to_dense(x, like, 1 / workers) for x, like in zip(of_worker(0), wide, strict=True)]
    totals = lax.fori_loop(1, workers, add_one, vary_like(first, everyone))
    return [total.astype(x.dtype) for total, x in zip(totals, likes, strict=True)]
