"""What can be known of a codec without a network: that there is one, and the size of its messages."""

from typing import Any

import jax

from jaxcompress.base import Codec, Compressor
from jaxcompress.ops.trees import tree_bits


def codec_of(outer: str, inner: Any, example: str) -> Codec:
    """The codec of `inner`; ValueError, in the name of what is around it and with an example, if there is none."""
    if not isinstance(inner, Compressor):
        raise ValueError(f"{outer} takes a compressor, as in {example}; got {inner!r}.")
    if inner.codec is None:
        raise ValueError(
            f"{outer} hands values to a codec, and {inner.expression or 'this inner'} has none: it compresses and "
            f"sends in one act. Use one with a codec, as qsgd(8), cast('bfloat16') or block_top_k(0.01), and put "
            f"memories outside: error_feedback({example})."
        )
    return inner.codec


def codec_bits(codec: Codec, x: Any) -> int:
    """The size of the message of an array like `x`, in bits, from its shape alone."""
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return tree_bits(jax.eval_shape(lambda x: codec.encode(jax.random.key(0), x), like))
