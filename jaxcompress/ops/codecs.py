"""Operations of a codec without a network: encode, decode, and the size of messages."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor
from jaxcompress.ops.serialization import words_in
from jaxcompress.ops.sparse_array import to_dense
from jaxcompress.ops.trees import array_bits, tree_bits


def codec_of(outer: str, inner: Any, example: str) -> Codec:
    """The codec of `inner`; ValueError in the name of `outer` if there is none."""
    if not isinstance(inner, Compressor):
        raise ValueError(f"{outer} takes a compressor, as in {example}; got {inner!r}.")
    if inner.codec is None:
        raise ValueError(
            f"{outer} needs an inner compressor with a codec, and {inner!r} has none. Use qsgd(8),"
            " cast('bfloat16') or block_top_k(0.01); put memories and rotations outside:"
            f" error_feedback({example}), rotated({example})."
        )
    return inner.codec


def value_codec_of(outer: str, inner: Any, example: str) -> Codec:
    """The codec of `inner` for vectors of values; ValueError if it makes a vector larger."""
    codec = codec_of(outer, inner, example)
    vector = jax.ShapeDtypeStruct((4096,), jnp.float32)
    if codec_bits(codec, vector) > array_bits(vector):
        raise ValueError(
            f"{outer} sends its values as a vector, which {inner!r} makes larger."
            f" Use a quantiser for the values, as in {example}."
        )
    return codec


def encode(codec: Codec, key: jax.Array, x: jax.Array) -> Any:
    """The message of one array."""
    if codec.select is None:
        return codec.encode(key, x)
    select_key, encode_key = jax.random.split(key)
    return codec.encode(encode_key, codec.select(select_key, x))


def decode(codec: Codec, message: Any, like: Any) -> jax.Array:
    """The array that a message encodes."""
    return to_dense(codec.decode(message, like), like)


def codec_of_parts(codec: Codec, counts: Sequence[int]) -> Codec:
    """A codec of vectors that encodes parts of so many entries on their own."""
    ends = list(itertools.accumulate(counts))
    alike: dict[int, list[int]] = {}
    for i, count in enumerate(counts):
        alike.setdefault(count, []).append(i)

    def encode_parts(key, x):
        keys = jax.random.split(key, len(counts))
        return [
            jax.vmap(lambda key, part: encode(codec, key, part))(
                keys[jnp.array(places)],
                jnp.stack([x[ends[i] - count : ends[i]] for i in places]),
            )
            for count, places in alike.items()
            if count
        ]

    def decode_parts(messages, like):
        found = [jnp.zeros(0, like.dtype)] * len(counts)
        sizes = filter(None, alike)
        for count, message in zip(sizes, messages, strict=True):
            part = jax.ShapeDtypeStruct((count,), like.dtype)
            rows = jax.vmap(lambda one, part=part: decode(codec, one, part))(message)
            for i, row in zip(alike[count], rows, strict=True):
                found[i] = row
        return jnp.concatenate(found)

    return Codec(encode_parts, decode_parts)


def codec_bits(codec: Codec, x: Any) -> int:
    """The size in bits of the message of an array like `x`, from its shape alone."""
    return _codec_bits(codec, tuple(x.shape), jnp.dtype(x.dtype))


def message_words(codec: Codec, arrays: Sequence[Any]) -> int:
    """The words of the messages of all arrays in one row, from their shapes alone."""
    return words_in([_message(codec, tuple(x.shape), jnp.dtype(x.dtype)) for x in arrays])


@functools.lru_cache(maxsize=4096)
def _codec_bits(codec: Codec, shape: tuple[int, ...], dtype: Any) -> int:
    return tree_bits(_message(codec, shape, dtype))


@functools.lru_cache(maxsize=4096)
def _message(codec: Codec, shape: tuple[int, ...], dtype: Any) -> Any:
    """The shapes and dtypes of one array's message."""
    like = jax.ShapeDtypeStruct(shape, dtype)
    return jax.eval_shape(lambda x: encode(codec, jax.random.key(0), x), like)
