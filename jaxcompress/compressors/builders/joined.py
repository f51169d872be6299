"""Encodes all arrays of an update as one, on GPUs, which launch kernels for every array."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxcompress._compat import platform
from jaxcompress.base import Codec, Compressor, Reduced
from jaxcompress.collectives.one_phase import all_gather_mean
from jaxcompress.ops.codecs import message_words
from jaxcompress.ops.merging import disjoin, join, joinable


def joined(compressor: Compressor, codec_of_all: Callable[[tuple[int, ...]], Codec]) -> Compressor:
    """`compressor`, which on GPUs encodes its arrays as one.

    How it travels: by one all-gather, in a message of the same length. Arrays that do not join (see
    `joinable`), or would need a longer message as one, are encoded one by one.

    Args:
      compressor: One with a codec that needs whole arrays.
      codec_of_all: Sizes of arrays -> a codec of the vector that `join` makes of them. It keeps
        what the codec of `compressor` keeps of each.

    Returns:
      A `Compressor` with the codec of `compressor`.

    Raises:
      ValueError: if `compressor` has no such codec.
    """
    codec = compressor.codec
    if codec is None or codec.chunk is not None:
        raise ValueError(f"joined needs a codec without chunks, and {compressor!r} has none.")

    # The sizes of messages are cached by codec.
    codec_of_all = functools.lru_cache(maxsize=16)(codec_of_all)

    def reduce(key, updates, state, axis_name):
        arrays, treedef = jax.tree.flatten(updates)
        if platform() == "gpu" and joinable(arrays):
            as_one, one = codec_of_all(tuple(x.size for x in arrays)), join(arrays)
            spare = message_words(codec, arrays) - message_words(as_one, [one])
            if spare >= 0:
                # The bytes of a message are the same on all platforms.
                found = all_gather_mean(_lengthened(as_one, spare), key, [one], axis_name)
                mean, residual = (
                    treedef.unflatten(disjoin(jax.tree.leaves(x)[0], arrays))
                    for x in (found.mean, found.residual)
                )
                return Reduced(mean, residual, found.bits), state
        return all_gather_mean(codec, key, updates, axis_name), state

    return compressor._replace(reduce=reduce)


def _lengthened(codec: Codec, words: int) -> Codec:
    """The codec with so many more words, all zero, in its message."""

    def encode(key, x):
        return codec.encode(key, x), jnp.zeros(words, jnp.uint32)

    def decode(message, like):
        return codec.decode(message[0], like)

    return codec._replace(encode=encode, decode=decode)
