"""Each worker averages and recompresses one shard: bytes do not grow with the workers."""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from optax import Updates

from jaxcompress._compat import axis_size, vary_like
from jaxcompress.base import AxisName, Codec, Compressor, Reduced, parseable
from jaxcompress.collectives.long_messages import gather_words, send_rows
from jaxcompress.ops.codecs import codec_bits, codec_of, decode, encode
from jaxcompress.ops.merging import together
from jaxcompress.ops.serialization import WORD_BYTES, from_words, to_words, words_in
from jaxcompress.ops.sparse_array import add_to, subtract_from
from jaxcompress.ops.trees import in_dtype_of


@parseable
def two_phase(inner: Compressor) -> Compressor:
    """Sends each chunk's message to its owner, which averages, compresses again and sends to all.

    The arrays are cut into chunks, and each of the W workers owns an equal share of them::

        m_w      = encode(x_w)           every worker, all chunks; all-to-all to the owners
        a        = mean_w(decode(m_w))   the owner, its chunks
        mean     = decode(encode(a))     all-gather from the owners
        residual = x_w - decode(m_w) + W (a - mean)   the second term on the owner's chunks only

    So the law holds, and the owner adds the recompression error to its own residual.

    How it travels: one all-to-all of B bytes and one all-gather of B/W, for all arrays together.
    Between processes on CPUs, long messages take another route, which sends as many bytes. A worker
    sends ``2 (W-1)/W B``, where `one_phase` sends ``(W-1) B``. The two are equal for two workers;
    from three workers on, two phases send less.

    If an array does not fill its last chunk, padding does. Where the codec does not select, the
    padding mirrors the entries before it, so that scales stay those of the array. Where it selects,
    the padding is zeros, which a selection ignores.

    Guarantees: the law of `Reduced`; inside `error_feedback` nothing is lost. Where `inner`
    contracts, each of the two encodings does. But the residual of one worker is no contraction of
    its own updates, since the owner keeps the error of the second encoding for all workers.
    Unbiased if `inner` is.

    Args:
      inner: Any compressor whose codec works chunk by chunk: ``qsgd(4)``, ``sign()``,
        ``cast("bfloat16")``, ``block_top_k(0.01)``, ``block_max(128)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `inner` has no codec, or a codec that needs the whole array, such as `top_k`.

    Example:
      >>> from jaxcompress.compressors.quantisers.qsgd import qsgd
      >>> two_phase(qsgd(4))
      two_phase(qsgd(4))

    References:
      Tang et al., `1-bit Adam <https://arxiv.org/abs/2102.02888>`_, 2021, compresses in two phases
      with two memories
    """
    codec = codec_of("two_phase", inner, "two_phase(qsgd(8))")
    chunk = codec.chunk
    if chunk is None:
        raise ValueError(
            f"two_phase compresses chunks on their own, and {inner!r} needs whole arrays. Select"
            " within blocks instead: two_phase(block_top_k(0.01))."
        )

    def reduce(key, updates, state, axis_name):
        return two_phase_mean(codec, key, updates, axis_name), state

    def message_bits(params):
        bits = codec_bits(codec, jax.ShapeDtypeStruct((chunk,), jnp.float32))
        return jax.tree.map(lambda x: -(-x.size // chunk) * bits, params)

    return inner._replace(init=lambda key, params: (), reduce=reduce, message_bits=message_bits)


def two_phase_mean(codec: Codec, key: jax.Array, updates: Updates, axis_name: AxisName) -> Reduced:
    """Runs both phases for all arrays together."""
    leaves, treedef = jax.tree.flatten(updates)
    plan = _plan(codec, leaves, axis_size(axis_name))
    if not plan.share:
        return Reduced(updates, updates, 0)

    groups = together(leaves)
    chunks = [_split([leaves[i] for i in group], plan) for group in groups]
    counts = tuple(sum(plan.counts[i] for i in group) for group in groups)
    found = _both_phases(codec, key, chunks, plan._replace(counts=counts), axis_name)
    mean, residual = (treedef.unflatten(_cut(each, leaves, groups, plan)) for each in found)
    bits = 8 * WORD_BYTES * (plan.workers + 1) * _share_words(codec, plan)
    return Reduced(mean, residual, bits)


def two_phase_bytes(codec: Codec, updates: Updates, workers: int) -> int:
    """The bytes that one worker sends by rings in both phases, from shapes alone."""
    plan = _plan(codec, jax.tree.leaves(updates), workers)
    return 2 * (workers - 1) * WORD_BYTES * _share_words(codec, plan)


class _Plan(NamedTuple):
    """Which worker owns which chunks: those of all arrays in one row, cut into equal shares."""

    workers: int
    chunk: int  # entries
    counts: tuple[int, ...]  # chunks of each array
    share: int  # chunks that each worker owns; the last shares are padded
    dtype: Any  # of the chunks: at least float32
    mirrored: bool  # whether the last chunk of an array is filled with the entries before it


def _plan(codec: Codec, leaves: list, workers: int) -> _Plan:
    chunk = codec.chunk or 1
    counts = tuple(-(-x.size // chunk) for x in leaves)
    dtype = jnp.result_type(jnp.float32, *(x.dtype for x in leaves))
    # Mirrored entries preserve means and deviations, but a selection would select them.
    return _Plan(workers, chunk, counts, -(-sum(counts) // workers), dtype, codec.select is None)


def _share_words(codec: Codec, plan: _Plan) -> int:
    """The words of the messages of one owner's chunks."""
    share = jax.ShapeDtypeStruct((plan.share, plan.chunk), plan.dtype)
    return words_in(jax.eval_shape(lambda x: _encode(codec, jax.random.key(0), x), share))


def _both_phases(
    codec: Codec, key: jax.Array, chunks: list[jax.Array], plan: _Plan, axis_name: AxisName
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Mean and residual of the chunks of every array."""
    worker = lax.axis_index(axis_name)
    first_key, second_key = jax.random.split(jax.random.fold_in(key, worker))
    keys = [jax.random.fold_in(first_key, i) for i in range(len(chunks))]
    own = [_encode(codec, *pair) for pair in zip(keys, chunks, strict=True)]
    to_owners, like = _by_owner(own, plan)
    from_all = send_rows(to_owners, axis_name)
    average = _average(codec, from_all, like, plan)

    again = _encode(codec, second_key, average)
    everyone = gather_words(to_words(again), axis_name)
    dropped = _own_chunks(plan.workers * (average - _decode(codec, again, plan)), plan, worker)

    mean = [_decode(codec, one, plan) for one in _all_chunks(everyone, again, plan)]
    residual = [
        _residual(codec, x, one, plan) + x_dropped
        for x, one, x_dropped in zip(chunks, own, dropped, strict=True)
    ]
    return mean, residual


def _split(arrays: list[jax.Array], plan: _Plan) -> jax.Array:
    """All arrays as chunks, (count, chunk), each with the last chunk filled."""
    parts = []
    for x in arrays:
        flat, fill = x.astype(plan.dtype).ravel(), -x.size % plan.chunk
        if plan.mirrored and x.size:
            # By a gather: jnp.pad would unroll the reflections of an array much smaller than a
            # chunk. The entries before the end are enough.
            last = min(x.size, plan.chunk)
            end = np.pad(np.arange(last), (0, fill), mode="symmetric")[last:]
            parts += [flat, flat[x.size - last :][end]]
        else:
            parts += [flat, jnp.zeros(fill, plan.dtype)]
    return jnp.concatenate(parts).reshape(-1, plan.chunk)


def _cut(
    chunks: list[jax.Array], leaves: list[jax.Array], groups: list[list[int]], plan: _Plan
) -> list[jax.Array]:
    """The arrays of all groups; for one group, the inverse of `_split`."""
    found = {}
    # Cut from a flat array, since XLA combines such cuts of a GPU's program into few kernels.
    for flat, group in zip(map(jnp.ravel, chunks), groups, strict=True):
        start = 0
        for i in group:
            part = flat[start : start + leaves[i].size]
            found[i] = in_dtype_of(part.reshape(leaves[i].shape), leaves[i])
            start += plan.counts[i] * plan.chunk
    return [found[i] for i in range(len(leaves))]


def _encode(codec: Codec, key: jax.Array, chunks: jax.Array) -> Any:
    """Messages of all chunks, stacked along a first axis."""
    keys = jax.random.split(key, chunks.shape[0])
    encode_all = jax.vmap(lambda key, x: encode(codec, key, x))
    if not chunks.shape[0]:
        # Some random number generators fail on a batch of no keys.
        like = jax.eval_shape(encode_all, keys, chunks)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    return encode_all(keys, chunks)


def _decode(codec: Codec, messages: Any, plan: _Plan) -> jax.Array:
    like = _chunk_like(plan)
    return jax.vmap(lambda message: decode(codec, message, like))(messages)


def _residual(codec: Codec, chunks: jax.Array, messages: Any, plan: _Plan) -> jax.Array:
    """The chunks minus what their messages decode to."""
    like = _chunk_like(plan)
    return jax.vmap(lambda x, one: subtract_from(x, codec.decode(one, like)))(chunks, messages)


def _chunk_like(plan: _Plan) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((plan.chunk,), plan.dtype)


def _by_owner(own: list, plan: _Plan) -> tuple[jax.Array, Any]:
    """The messages as one row of words per owner, and the shapes of what a row holds."""
    fill = plan.workers * plan.share - sum(plan.counts)

    def split(*parts):
        row = jnp.pad(jnp.concatenate(parts), [(0, fill)] + [(0, 0)] * (parts[0].ndim - 1))
        return row.reshape(plan.workers, plan.share, *row.shape[1:])

    shards = jax.tree.map(split, *own)
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shards)
    return jax.vmap(to_words)(shards), like


def _average(codec: Codec, received: jax.Array, like: Any, plan: _Plan) -> jax.Array:
    """The owner's chunks, averaged over all senders one after the other: (share, chunk)."""
    chunk = _chunk_like(plan)

    def add_one(sender, total):
        messages = from_words(received[sender], like)
        decoded = jax.vmap(lambda message: codec.decode(message, chunk))(messages)
        return jax.vmap(lambda row, one: add_to(row, one, 1 / plan.workers))(total, decoded)

    total = jnp.zeros((plan.share, plan.chunk), plan.dtype)
    return lax.fori_loop(0, plan.workers, add_one, vary_like(total, received))


def _all_chunks(everyone: jax.Array, like: Any, plan: _Plan) -> list:
    """The second messages of all chunks, one entry per array."""
    shares = jax.vmap(lambda words: from_words(words, like))(everyone)
    row = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), shares)
    return [
        jax.tree.map(lambda x, start=end - count, end=end: x[start:end], row)
        for count, end in zip(plan.counts, itertools.accumulate(plan.counts), strict=True)
    ]


def _own_chunks(owned: jax.Array, plan: _Plan, owner: jax.Array) -> list[jax.Array]:
    """The owner's chunks at their position in each array, and zeros elsewhere."""
    most = max(plan.counts)
    padded = jnp.pad(owned, ((most, most), (0, 0)))
    found = []
    for count, end in zip(plan.counts, itertools.accumulate(plan.counts), strict=True):
        start = jnp.clip(end - count - owner * plan.share + most, 0, plan.share + most)
        found.append(lax.dynamic_slice_in_dim(padded, start, count))
    return found
