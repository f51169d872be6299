"""Lets two workers begin to send a long message at the same time, which gloo needs on CPUs."""

from jax import lax
from jaxtyping import Array, UInt32

from jaxcompress._compat import axis_size, sends_by_gloo
from jaxcompress.base import AxisName
from jaxcompress.ops.serialization import WORD_BYTES

LEAST_BYTES = 2**16  # a shorter message takes about as long as the wait, at 1 Gbit/s


def begin_together(words: UInt32[Array, "..."], axis_name: AxisName) -> UInt32[Array, "..."]:
    """`words` unchanged, once those of both workers are ready to be sent.

    Between processes on CPUs, that is one all-reduce of 4 bytes before a long message of two
    workers; else it is nothing. gloo tells the other worker that it may send only after its own
    message has left. So two workers that begin an all-gather or an all-to-all a moment apart send
    one after the other, not both at once. An all-gather of three or more workers is a ring, in
    which no two workers send to each other.
    """
    short = words.size * WORD_BYTES < LEAST_BYTES
    if short or axis_size(axis_name) != 2 or not sends_by_gloo():
        return words
    # Without the barrier XLA computes the first word alone, and the rest after the sum.
    flat = lax.optimization_barrier(words.ravel())
    top_bit = lax.psum(flat[:1] >> 31, axis_name)
    # Never true, but XLA cannot know that: so it keeps the sum, and sends `words` after it.
    flat = flat.at[:1].add((top_bit > axis_size(axis_name)).astype(flat.dtype))
    return flat.reshape(words.shape)
