"""Every worker's message goes to all others: one all-gather, whose bytes grow with the workers."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from optax import Updates

from jaxcompress._compat import all_gather, axis_size, vary_like
from jaxcompress.base import AxisName, Codec, Compressor, Reduced, Stages, expressible, stages_of
from jaxcompress.ops.codecs import codec_bits, codec_of
from jaxcompress.ops.words import WORD_BYTES, from_words, to_words, words_in


@expressible
def one_phase(inner: Compressor) -> Compressor:
    """Sends `inner`'s messages by one all-gather, however many workers there are.

    ``mean = (1/W) sum_w decode(message_w)`` and ``sent = decode(own message)``. Without it a scheme goes in two phases
    where that sends less than half as much: see `two_phase`.

    How it travels: the messages of all arrays in one buffer and one all-gather: a ring forwards each message B to
    ``W - 1`` others, so a worker sends ``(W - 1) B``.

    Guarantees: ``mean == pmean(sent)`` up to rounding, and all that `inner` guarantees of `sent`.

    Args:
      inner: Any compressor with a codec: ``qsgd(4)``, ``block_top_k(0.01)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `inner` has no codec.

    Example:
      >>> from jaxcompress.compressors.quantisers.qsgd import qsgd
      >>> one_phase(qsgd(4)).expression
      'one_phase(qsgd(4))'
    """
    codec = codec_of("one_phase", inner, "one_phase(qsgd(8))")

    def reduce(key, updates, state, axis_name):
        return exchange_once(codec, key, updates, axis_name), state

    def message_bits(params):
        return jax.tree.map(lambda x: codec_bits(codec, x), params)

    return Compressor(lambda key, params: (), reduce, message_bits, codec)


def exchange_once(codec: Codec, key: jax.Array, updates: Updates, axis_name: AxisName) -> Reduced:
    """Encodes, gathers, decodes and averages; every worker, and every array, encodes with a key of its own."""
    leaves, treedef = jax.tree.flatten(updates)
    stages, groups = stages_of(codec), _groups(codec, leaves)
    keys = jax.random.split(jax.random.fold_in(key, lax.axis_index(axis_name)), (max(1, len(leaves)), 2))
    messages = [_make(stages, keys, group, leaves) for group in groups]
    words = to_words(messages)

    own = _read(stages, messages, groups, leaves)
    mean = _mean(stages, words, messages, groups, leaves, axis_name)
    sent = [stages.put(picked, x, 1) for picked, x in zip(own, leaves, strict=True)]
    rest = [stages.rest(x, picked) for picked, x in zip(own, leaves, strict=True)]
    bits = 8 * WORD_BYTES * words.size
    return Reduced(treedef.unflatten(mean), treedef.unflatten(sent), bits, treedef.unflatten(rest))


def bytes_once(codec: Codec, updates: Updates, workers: int) -> int:
    """What one worker sends by a ring, in bytes, known from shapes alone."""
    messages = jax.eval_shape(lambda tree: [codec.encode(jax.random.key(0), x) for x in jax.tree.leaves(tree)], updates)
    return (workers - 1) * WORD_BYTES * words_in(messages)


def _groups(codec: Codec, leaves: list) -> list[list[int]]:
    """Places of the arrays whose messages are made together: those of one shape where few entries are picked."""
    alike: dict[Any, list[int]] = {}
    for place, x in enumerate(leaves):
        alike.setdefault((x.shape, x.dtype) if codec.stages else place, []).append(place)
    return list(alike.values())


def _make(stages: Stages, keys: jax.Array, group: list[int], leaves: list) -> Any:
    """The messages of a group, with a first axis of arrays."""
    each = [stages.pick(keys[place, 0], leaves[place]) for place in group]
    picked = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
    return jax.vmap(lambda key, one: stages.make(key, one, leaves[group[0]]))(keys[jnp.array(group), 1], picked)


def _read(stages: Stages, messages: list, groups: list[list[int]], likes: list) -> list[Any]:
    """What arrives of each array, in their order."""
    found = {}
    for group, message in zip(groups, messages, strict=True):
        picked = jax.vmap(lambda one, like=likes[group[0]]: stages.read(one, like))(message)
        found.update({place: jax.tree.map(lambda x, i=i: x[i], picked) for i, place in enumerate(group)})
    return [found[place] for place in range(len(likes))]


def _mean(
    stages: Stages, words: jax.Array, messages: list, groups: list[list[int]], likes: list, axis_name: AxisName
) -> list[jax.Array]:
    """The average of all workers' decoded messages, added one after the other in at least float32.

    One after the other, since places are unique only within a sender: a scatter-add with collisions adds in no fixed
    order on GPUs, and replicas would drift apart.
    """
    workers = axis_size(axis_name)
    wide = [jax.ShapeDtypeStruct(x.shape, jnp.promote_types(x.dtype, jnp.float32)) for x in likes]
    if not words.size:
        return [jnp.zeros(x.shape, x.dtype) for x in likes]
    everyone = all_gather(words, axis_name)

    def of_worker(worker):
        return _read(stages, from_words(everyone[worker], messages), groups, likes)

    def add_one(worker, totals):
        return [stages.add(total, one, 1 / workers) for total, one in zip(totals, of_worker(worker), strict=True)]

    # The first worker's are put into arrays of their own, which saves a pass over zeros.
    first = [stages.put(one, like, 1 / workers) for one, like in zip(of_worker(0), wide, strict=True)]
    totals = lax.fori_loop(1, workers, add_one, vary_like(first, everyone))
    return [total.astype(x.dtype) for total, x in zip(totals, likes, strict=True)]
