"""Each shard is averaged by one worker and compressed again: bytes that do not grow with the workers."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from optax import Updates

from jaxcompress._compat import all_gather, all_to_all, axis_size, vary_like
from jaxcompress.base import AxisName, Codec, Compressor, Reduced, encode_first, expressible, stages_of
from jaxcompress.ops.codecs import codec_bits, codec_of
from jaxcompress.ops.words import WORD_BYTES, from_words, to_words, words_in


@expressible
def two_phase(inner: Compressor) -> Compressor:
    """Sends the pieces of `inner`'s messages to their owners, and the compressed averages from there to all.

    The arrays are cut into pieces, and each of the W workers owns as many::

        m_w    = encode(x_w)                  every worker, all pieces; all-to-all to the owners
        a      = mean_w(decode(m_w))          the owner, its pieces
        mean   = decode(encode(a))            all-gather from the owners
        sent_w = decode(m_w) - W (a - mean)   the second term on the owner's pieces only

    so ``mean == pmean(sent)``, and the owner's ordinary error memory carries what the second compression dropped.

    How it travels: one all-to-all of B and one all-gather of B/W, for all arrays together: a worker sends
    ``2 (W-1)/W B``, where `one_phase` sends ``(W-1) B``. For two workers it is the same, and less from three on.

    Guarantees: the law; that nothing is lost inside `error_feedback`, with which it converges. `sent` is no contraction
    of a worker's own updates: the owner answers for all workers. Unbiased if `inner` is; and an unbiased `inner` that
    diverges inside `error_feedback`, as ``qsgd(2)``, diverges there in two phases too.

    Args:
      inner: Any compressor whose codec works piece by piece: ``qsgd(4)``, ``sign()``, ``cast("bfloat16")``,
        ``block_top_k(0.01)``, ``block_max(128)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `inner` has no codec, or one that must see the whole array, as that of `top_k`.

    Example:
      >>> from jaxcompress.compressors.quantisers.qsgd import qsgd
      >>> two_phase(qsgd(4)).expression
      'two_phase(qsgd(4))'

    References:
      Tang et al., `1-bit Adam <https://arxiv.org/abs/2102.02888>`_, 2021, compresses in two phases with two memories
    """
    codec = codec_of("two_phase", inner, "two_phase(qsgd(8))")
    piece = codec.piece
    if piece is None:
        raise ValueError(
            f"two_phase compresses shards on their own, and {inner.expression or 'this inner'} must see whole arrays. "
            f"Choose within blocks instead: two_phase(block_top_k(0.01))."
        )

    def reduce(key, updates, state, axis_name):
        return exchange_twice(codec, key, updates, axis_name), state

    def message_bits(params):
        bits = codec_bits(codec, jax.ShapeDtypeStruct((piece,), jnp.float32))
        return jax.tree.map(lambda x: -(-x.size * bits // piece), params)

    return Compressor(lambda key, params: (), reduce, message_bits, codec)


def exchange_twice(codec: Codec, key: jax.Array, updates: Updates, axis_name: AxisName) -> Reduced:
    """Both phases, for all arrays together."""
    leaves, treedef = jax.tree.flatten(updates)
    plan = _plan(codec, leaves, axis_size(axis_name))
    if not plan.share:
        return Reduced(updates, updates, 0)
    first_key, second_key = jax.random.split(jax.random.fold_in(key, lax.axis_index(axis_name)))

    own = [
        _encode(codec, jax.random.fold_in(first_key, i), _cut(x, plan), _filled([x.size], plan))
        for i, x in enumerate(leaves)
    ]
    to_owners, like = _shards(own, plan)
    average = _average(codec, all_to_all(to_owners, axis_name), like, plan)
    # What stands for the filling has come back as something else than zeros.
    mine = _filled_of(lax.axis_index(axis_name), [x.size for x in leaves], plan)
    average = jnp.where(jnp.arange(plan.piece) < mine[:, None], average, 0)

    again = _encode(codec, second_key, average, mine)
    everyone = all_gather(to_words(again), axis_name)
    dropped = plan.workers * (average - _decode(codec, again, plan))
    late = _at_home(dropped, plan, lax.axis_index(axis_name))

    pieces = _all_pieces(everyone, again, plan)
    mean = [_join(_decode(codec, one, plan), x) for one, x in zip(pieces, leaves, strict=True)]
    parts = [_join(_decode(codec, one, plan), x) for one, x in zip(own, leaves, strict=True)]
    late = [_join(one, x) for one, x in zip(late, leaves, strict=True)]
    sent = [part - one for part, one in zip(parts, late, strict=True)]
    rest = [x - part + one for x, part, one in zip(leaves, parts, late, strict=True)]
    bits = 8 * WORD_BYTES * (to_owners.size + everyone.shape[1])
    return Reduced(treedef.unflatten(mean), treedef.unflatten(sent), bits, treedef.unflatten(rest))


def bytes_twice(codec: Codec, updates: Updates, workers: int) -> int:
    """What one worker sends by rings in both phases, in bytes, known from shapes alone."""
    plan = _plan(codec, jax.tree.leaves(updates), workers)
    share = jax.ShapeDtypeStruct((plan.share, plan.piece), plan.dtype)
    words = words_in(jax.eval_shape(lambda x: _encode(codec, jax.random.key(0), x, jnp.zeros(plan.share)), share))
    return 2 * (workers - 1) * WORD_BYTES * words


class _Plan(NamedTuple):
    """Which pieces lie where: those of all arrays in one row, cut into equal shares."""

    workers: int
    piece: int  # entries
    counts: tuple[int, ...]  # pieces of each array
    share: int  # pieces that each worker owns; the last shares are filled up
    dtype: Any  # of the pieces: at least float32


def _plan(codec: Codec, leaves: list, workers: int) -> _Plan:
    piece = codec.piece or 1
    counts = tuple(-(-x.size // piece) for x in leaves)
    dtype = jnp.result_type(jnp.float32, *(x.dtype for x in leaves))
    return _Plan(workers, piece, counts, -(-sum(counts) // workers), dtype)


def _cut(x: jax.Array, plan: _Plan) -> jax.Array:
    """An array as pieces, (count, piece), the last one filled with zeros."""
    flat = jnp.pad(x.astype(plan.dtype).ravel(), (0, -x.size % plan.piece))
    return flat.reshape(-1, plan.piece)


def _join(pieces: jax.Array, like: jax.Array) -> jax.Array:
    """The inverse of `_cut`."""
    return pieces.ravel()[: like.size].reshape(like.shape).astype(like.dtype)


def _filled(sizes: Sequence[int], plan: _Plan) -> jax.Array:
    """How many entries of each piece of these arrays are real; the last one of an array may be short."""
    counts = [np.clip(size - np.arange(0, size, plan.piece), 0, plan.piece) for size in sizes]
    return jnp.asarray(np.concatenate(counts), jnp.int32)


def _filled_of(owner: jax.Array, sizes: Sequence[int], plan: _Plan) -> jax.Array:
    """The same for the pieces that a worker owns."""
    everyone = jnp.pad(_filled(sizes, plan), (0, plan.workers * plan.share - sum(plan.counts)))
    return lax.dynamic_slice_in_dim(everyone, owner * plan.share, plan.share)


def _encode(codec: Codec, key: jax.Array, pieces: jax.Array, filled: jax.Array) -> Any:
    """Messages of all pieces, of whose entries so many are real: every array has a first axis of pieces."""
    keys = jax.random.split(key, pieces.shape[0])
    return jax.vmap(functools.partial(encode_first, codec))(keys, pieces, filled)


def _decode(codec: Codec, messages: Any, plan: _Plan) -> jax.Array:
    like = _piece_like(plan)
    return jax.vmap(lambda message: codec.decode(message, like))(messages)


def _piece_like(plan: _Plan) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((plan.piece,), plan.dtype)


def _shards(own: list, plan: _Plan) -> tuple[jax.Array, Any]:
    """The messages of all pieces as one row of words for each owner, and the shapes of what a row holds."""
    fill = plan.workers * plan.share - sum(plan.counts)

    def split(*parts):
        row = jnp.pad(jnp.concatenate(parts), [(0, fill)] + [(0, 0)] * (parts[0].ndim - 1))
        return row.reshape(plan.workers, plan.share, *row.shape[1:])

    shards = jax.tree.map(split, *own)
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shards)
    return jax.vmap(to_words)(shards), like


def _average(codec: Codec, received: jax.Array, like: Any, plan: _Plan) -> jax.Array:
    """The owner's pieces, averaged over all senders one after the other: (share, piece)."""
    stages, piece = stages_of(codec), _piece_like(plan)

    def add_one(sender, total):
        messages = from_words(received[sender], like)
        picked = jax.vmap(lambda message: stages.read(message, piece))(messages)
        return jax.vmap(lambda row, one: stages.add(row, one, 1 / plan.workers))(total, picked)

    total = jnp.zeros((plan.share, plan.piece), plan.dtype)
    return lax.fori_loop(0, plan.workers, add_one, vary_like(total, received))


def _all_pieces(everyone: jax.Array, like: Any, plan: _Plan) -> list:
    """The second messages of all pieces, array by array."""
    shares = jax.vmap(lambda words: from_words(words, like))(everyone)
    row = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), shares)
    starts = [sum(plan.counts[:i]) for i in range(len(plan.counts))]
    return [
        jax.tree.map(lambda x, start=start, count=count: x[start : start + count], row)
        for start, count in zip(starts, plan.counts, strict=True)
    ]


def _at_home(owned: jax.Array, plan: _Plan, owner: jax.Array) -> list[jax.Array]:
    """The owner's pieces where they belong, array by array, and zeros elsewhere."""
    most = max(plan.counts)
    padded = jnp.pad(owned, ((most, most), (0, 0)))
    found = []
    for i, count in enumerate(plan.counts):
        start = jnp.clip(sum(plan.counts[:i]) - owner * plan.share + most, 0, plan.share + most)
        found.append(lax.dynamic_slice_in_dim(padded, start, count))
    return found
