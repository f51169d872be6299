"""Messages that cannot be added: all workers' are gathered, decoded and averaged."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcompress._compat import all_gather, axis_size
from jaxcompress.base import AxisName, Codec, Compressor, Reduced
from jaxcompress.ops.trees import side_by_side, tree_bits


def gathered(codec: Codec, add: Callable[[jax.Array, Any], jax.Array] | None = None) -> Compressor:
    """A compressor from a codec: ``mean = (1/W) sum_w decode(message_w)``, and ``sent = decode(own message)``.

    How it travels: the messages of all arrays side by side, one all-gather per width of their entries (4, 2 and 1
    bytes). A worker's message counts once in `bits`; a ring forwards it to W - 1 others.

    Guarantees: ``mean == pmean(sent)`` up to rounding, whatever the codec. All workers add the same messages in the
    same order, so their means are equal to the last bit. Every worker, and every array, encodes with a key of its own.

    Args:
      codec: Makes the message of one array and reads it back.
      add: ``(total, message) -> total + decode(message)``, for codecs that can add without decoding to a full array.
    """
    add = add or (lambda total, message: total + codec.decode(message, total))

    def init(key, params):
        del key, params
        return ()

    def reduce(key, updates, state, axis_name):
        leaves, treedef = jax.tree.flatten(updates)
        keys = jax.random.split(jax.random.fold_in(key, lax.axis_index(axis_name)), max(1, len(leaves)))
        messages = [codec.encode(keys[place], x) for place, x in enumerate(leaves)]
        sent = [codec.decode(message, x) for message, x in zip(messages, leaves, strict=True)]
        mean = _mean(add, messages, leaves, axis_name)
        return Reduced(treedef.unflatten(mean), treedef.unflatten(sent), tree_bits(messages)), state

    return Compressor(init, reduce, lambda params: jax.tree.map(lambda x: codec_bits(codec, x), params), codec)


def codec_bits(codec: Codec, x: Any) -> int:
    """The size of the message of an array like `x`, in bits, from its shape alone."""
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return tree_bits(jax.eval_shape(lambda x: codec.encode(jax.random.key(0), x), like))


def _mean(add: Callable, messages: list, likes: list[jax.Array], axis_name: AxisName) -> list[jax.Array]:
    """The average of all workers' decoded messages, in at least float32."""
    workers = axis_size(axis_name)
    buffers, take_apart = side_by_side(messages)
    everyone = take_apart({width: all_gather(buffer, axis_name) for width, buffer in buffers.items()})

    def add_one(worker, totals):
        one = jax.tree.map(lambda message: message[worker], everyone)
        return [add(total, message) for total, message in zip(totals, one, strict=True)]

    zeros = [jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)) for x in likes]
    totals = lax.fori_loop(0, workers, add_one, zeros)
    return [(total / workers).astype(x.dtype) for total, x in zip(totals, likes, strict=True)]
