"""Sends every worker's message to all others: one all-gather, whose bytes grow with the workers."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from optax import Updates

from jaxcompress._compat import axis_size, vary_like
from jaxcompress.base import AxisName, Codec, Compressor, Reduced, parseable
from jaxcompress.collectives.long_messages import gather_words
from jaxcompress.ops.codecs import codec_bits, codec_of, message_words
from jaxcompress.ops.merging import Rows, merge, merges, unmerge
from jaxcompress.ops.serialization import WORD_BYTES, from_words, to_words
from jaxcompress.ops.sparse_array import add_to, subtract_from, to_dense


@parseable
def one_phase(inner: Compressor) -> Compressor:
    """Sends `inner`'s messages by one all-gather, for any number of workers.

    ``mean = (1/W) sum_w decode(message_w)`` and ``residual = x - decode(own message)``. Without
    `one_phase`, a codec travels in two phases where those save enough bytes: see `gathered`.

    How it travels: the messages of all arrays in one buffer and one all-gather. A ring forwards
    each message of B bytes to ``W - 1`` others, so a worker sends ``(W - 1) B``. Two workers in
    separate processes on CPUs exchange a long message by an all-reduce, which sends as many bytes.

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
    """Encodes, gathers, decodes and averages. Workers and arrays draw independently."""
    leaves, treedef = jax.tree.flatten(updates)
    key = jax.random.fold_in(key, lax.axis_index(axis_name))
    rows = _rows(codec)
    if not _can_merge(codec, leaves, rows):
        means, residuals, words = _average(codec, key, [x[None] for x in leaves], 0, axis_name)
        mean, residual = [x[0] for x in means], [x[0] for x in residuals]
    else:
        # The bytes are the same on all platforms.
        least = message_words(codec, leaves)
        stacks = merge(leaves, rows)
        mean, residual, words = _average(codec, key, stacks, least, axis_name)
        mean, residual = (unmerge(each, leaves, rows) for each in (mean, residual))
    return Reduced(treedef.unflatten(mean), treedef.unflatten(residual), 8 * WORD_BYTES * words)


def all_gather_bytes(codec: Codec, updates: Updates, workers: int) -> int:
    """The bytes that one worker sends in a ring, from shapes alone."""
    return (workers - 1) * WORD_BYTES * message_words(codec, jax.tree.leaves(updates))


def _rows(codec: Codec) -> Rows:
    """How `merge` may cut arrays into rows for this codec."""
    if codec.chunk is None or codec.select is None:
        # Zeros would change the scale of a row.
        return Rows(codec.chunk)
    like = jax.ShapeDtypeStruct((codec.chunk,), jnp.float32)
    selected = jax.eval_shape(codec.select, jax.eval_shape(lambda: jax.random.key(0)), like)
    # A selection takes zeros last, so they may fill a row. Where values are not encoded entry by
    # entry, those of two arrays must not share a scale.
    return Rows(selected.length, filled=True, apart=not codec.entrywise)


def _can_merge(codec: Codec, leaves: list[Any], rows: Rows) -> bool:
    """Whether there are arrays to merge, and their messages then need no more words."""
    if not merges(leaves, rows):
        return False
    arrays = [
        jax.ShapeDtypeStruct(stack.shape[1:], stack.dtype)
        for stack in jax.eval_shape(lambda arrays: merge(arrays, rows), leaves)
        for _ in range(stack.shape[0])
    ]
    return message_words(codec, arrays) <= message_words(codec, leaves)


def _average(
    codec: Codec, key: jax.Array, stacks: list[jax.Array], least: int, axis_name: AxisName
) -> tuple[list[jax.Array], list[jax.Array], int]:
    """Means and residuals of the arrays in every stack, and the words of the message, `least` or
    more.
    """
    ends = np.cumsum([len(stack) for stack in stacks], dtype=int)
    keys = jnp.split(jax.random.split(key, (ends[-1], 2)), ends[:-1]) if stacks else []
    batches = _batches(codec, stacks)
    messages = [_encode(codec, keys, batch, stacks) for batch in batches]
    words = to_words(messages)
    words = jnp.pad(words, (0, max(0, least - words.size)))
    own = _decode(codec, messages, batches, stacks)
    residual = [_each(subtract_from, *pair) for pair in zip(stacks, own, strict=True)]
    return _mean(codec, words, messages, batches, stacks, axis_name), residual, words.size


def _batches(codec: Codec, stacks: Sequence[jax.Array]) -> list[list[int]]:
    """Positions of the stacks to encode together: with a selection, all of one shape."""
    alike: dict[Any, list[int]] = {}
    for i, x in enumerate(stacks):
        alike.setdefault((x.shape[1:], x.dtype) if codec.select else i, []).append(i)
    return list(alike.values())


def _each(function: Callable, *stacks: Any) -> Any:
    """A function of every array in stacks of equal length."""
    if len(stacks[0]) > 1:
        return jax.vmap(function)(*stacks)
    leaves, treedef = jax.tree.flatten(stacks)
    one, treedef = jax.tree.flatten(function(*treedef.unflatten([x[0] for x in leaves])))
    return treedef.unflatten([x[None] for x in one])


def _encode(codec: Codec, keys: list[jax.Array], batch: list[int], stacks: list[jax.Array]) -> Any:
    """The messages of a batch, stacked along a first axis."""
    # Inlined, so that arrays of one shape are traced once; the program stays the same.
    select = jax.jit(codec.select, inline=True) if codec.select else (lambda key, x: x)
    found = [_each(select, keys[i][:, 0], stacks[i]) for i in batch]
    selected = jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)
    return jax.vmap(codec.encode)(jnp.concatenate([keys[i] for i in batch])[:, 1], selected)


def _decode(codec: Codec, messages: list, batches: list[list[int]], stacks: list) -> list[Any]:
    """The decoded stacks, sparse or dense, in the order of `stacks`."""
    found = {}
    for batch, message in zip(batches, messages, strict=True):
        like = jax.ShapeDtypeStruct(stacks[batch[0]].shape[1:], stacks[batch[0]].dtype)
        decoded = jax.vmap(lambda one, like=like: codec.decode(one, like))(message)
        start = 0
        for i in batch:
            end = start + len(stacks[i])
            found[i] = jax.tree.map(lambda x, own=slice(start, end): x[own], decoded)
            start = end
    return [found[i] for i in range(len(stacks))]


def _mean(
    codec: Codec,
    words: jax.Array,
    messages: list,
    batches: list[list[int]],
    stacks: list[jax.Array],
    axis_name: AxisName,
) -> list[jax.Array]:
    """The average of all workers' decoded messages, added in at least float32.

    It adds one worker after the other, since indices are unique only within a message. A
    scatter-add with collisions has no fixed order on GPUs, and replicas would drift apart.
    """
    workers = axis_size(axis_name)
    wide = [jnp.promote_types(x.dtype, jnp.float32) for x in stacks]
    if not words.size:
        return [jnp.zeros(x.shape, x.dtype) for x in stacks]
    everyone = gather_words(words, axis_name)

    def of_worker(worker):
        return _decode(codec, from_words(everyone[worker], messages), batches, stacks)

    def first(stack, decoded, dtype):
        like = jax.ShapeDtypeStruct(stack.shape[1:], dtype)
        return _each(lambda _, one: to_dense(one, like, 1 / workers), stack, decoded)

    def add(total, decoded):
        return add_to(total, decoded, 1 / workers)

    def add_one(worker, totals):
        pairs = zip(map(jnp.reshape, totals, shapes), of_worker(worker), strict=True)
        return list(map(jnp.reshape, [_each(add, *pair) for pair in pairs], carried))

    shapes = list(map(jnp.shape, stacks))
    # A stack of one array is carried as that array: another shape than the result's costs a copy.
    carried = [shape[1:] if shape[0] == 1 else shape for shape in shapes]
    # The totals start as the first worker's message, which saves a pass over zeros.
    totals = [first(*each) for each in zip(stacks, of_worker(0), wide, strict=True)]
    totals = list(map(jnp.reshape, totals, carried))
    totals = lax.fori_loop(1, workers, add_one, vary_like(totals, everyone))
    return [total.reshape(x.shape).astype(x.dtype) for total, x in zip(totals, stacks, strict=True)]
