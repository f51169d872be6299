"""Long messages between processes on CPUs, sent so that links carry both directions at once.

In gloo a worker may send a message to another only after the other's message to it has left. So two
workers that send to each other take turns, in an all-gather of two or in an all-to-all. But gloo
cuts the arrays of a sum into pieces, and sends them both ways at once. So two workers here sum
their words, as integers that wrap around, and subtract their own: what is left is the other's.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, UInt32

from jaxcompress._compat import (
    all_gather,
    all_to_all,
    axis_size,
    same_on_all,
    sends_by_gloo,
    sum_over_pairs,
)
from jaxcompress.base import AxisName
from jaxcompress.ops.serialization import WORD_BYTES

Pairs = tuple[tuple[int, int], ...]

# A shorter message takes about as long as the round trip that a sum waits for.
LEAST_BYTES = 2**16
# Likewise, but each of many rounds waits. At 10 Gbit/s a row of this size takes 0.2 ms.
LEAST_ROW_BYTES = 2**18


def gather_words(
    words: UInt32[Array, "words"], axis_name: AxisName
) -> UInt32[Array, "workers words"]:
    """All workers' `words`, in their order: one all-gather.

    Between processes on CPUs, two workers make one all-reduce of long `words` instead. More workers
    gather along a ring, in which no two send to each other.
    """
    if axis_size(axis_name) != 2 or not _is_long(words, LEAST_BYTES, axis_name):
        return all_gather(words, axis_name)
    words = _in_memory(words, axis_name)
    other = _of_partner(words, axis_name, ((0, 1),))
    is_first = lax.axis_index(axis_name) == 0
    rows = jnp.where(is_first, words, other), jnp.where(is_first, other, words)
    return same_on_all(jnp.stack(rows), axis_name)


def send_rows(
    rows: UInt32[Array, "workers words"], axis_name: AxisName
) -> UInt32[Array, "workers words"]:
    """Row i goes to worker i; returns one row from each worker, in their order: one all-to-all.

    Between processes on CPUs, long rows travel in W - 1 rounds. If the number of workers W is even,
    each round is an all-reduce in `rounds_of_pairs`. If it is odd, each is a permute, in which
    every worker sends to the one that is so many places further, and no two send to each other.
    """
    workers = len(rows)
    least = LEAST_BYTES if workers == 2 else LEAST_ROW_BYTES
    if not _is_long(rows[0], least, axis_name):
        return all_to_all(rows, axis_name)
    worker = lax.axis_index(axis_name)
    rows = _in_memory(rows, axis_name)
    received = rows  # a worker keeps its own row
    if workers % 2:
        for distance in range(1, workers):
            receivers = [(one + distance) % workers for one in range(workers)]
            row = lax.dynamic_slice_in_dim(rows, (worker + distance) % workers, 1)
            row = lax.ppermute(row, axis_name, list(enumerate(receivers)))
            sender = (worker - distance) % workers
            received = lax.dynamic_update_slice_in_dim(received, row, sender, 0)
        return received
    for pairs in rounds_of_pairs(workers):
        partners = dict(pairs) | {second: first for first, second in pairs}
        partner = jnp.array([partners[one] for one in range(workers)])[worker]
        row = lax.dynamic_slice_in_dim(rows, partner, 1)
        row = _of_partner(row, axis_name, pairs)
        received = lax.dynamic_update_slice_in_dim(received, row, partner, 0)
    return received


def rounds_of_pairs(workers: int) -> list[Pairs]:
    """W - 1 rounds for an even number of workers W: each meets each other one once.

    The last worker stays, and the others move on along a circle.
    """
    last = workers - 1
    return [
        (
            (round_, last),
            *(((round_ + i) % last, (round_ - i) % last) for i in range(1, workers // 2)),
        )
        for round_ in range(last)
    ]


def _of_partner(words: Array, axis_name: AxisName, pairs: Pairs) -> Array:
    """The `words` of the other worker of the pair."""
    return sum_over_pairs(words, axis_name, pairs) - words


def _in_memory(words: UInt32[Array, "..."], axis_name: AxisName) -> UInt32[Array, "..."]:
    """`words` unchanged, which are computed once, however often they are read.

    XLA may recompute an array where it is read, and round it differently there. But what is
    subtracted from a sum must be what was summed, to the bit. XLA computes the start of a loop
    once; this loop ends before its first round, and copies nothing.
    """
    never = lax.axis_index(axis_name) - axis_size(axis_name)
    return lax.while_loop(
        lambda carry: carry[0] >= 0, lambda carry: (carry[0] - 1, carry[1] + 1), (never, words)
    )[1]


def _is_long(words: Array, least: int, axis_name: AxisName) -> bool:
    """Whether the message is long enough for another route to pay."""
    # Over several axes, groups and permutes may count the workers in another order.
    one_axis = isinstance(axis_name, str)
    return words.size * WORD_BYTES >= least and one_axis and sends_by_gloo(axis_name)
