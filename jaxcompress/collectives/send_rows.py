"""Every worker sends one row to every other: how gloo, on CPUs, keeps both directions busy."""

from collections import Counter
from itertools import combinations
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt32

from jaxcompress._compat import all_to_all, sends_by_gloo
from jaxcompress.base import AxisName
from jaxcompress.collectives.begin_together import begin_together
from jaxcompress.ops.serialization import WORD_BYTES

# Each round waits for a round trip. At 10 Gbit/s a row of this size takes 0.2 ms, about as long as
# a round trip between near hosts.
LEAST_ROW_BYTES = 2**18


def send_rows(
    rows: UInt32[Array, "workers words"], axis_name: AxisName
) -> UInt32[Array, "workers words"]:
    """Row i goes to worker i; returns one row from each worker, in their order.

    It is one all-to-all. Between processes on CPUs, three or more workers send long rows in
    `one_way_rounds` instead, one permute after the other. In an all-to-all, two workers that send
    to each other would take turns: gloo lets a worker send only after the other's message has left.
    """
    workers, words = rows.shape
    short = words * WORD_BYTES < LEAST_ROW_BYTES
    # Over several axes a permute may count the workers in another order than an all-to-all.
    if workers <= 2 or short or not isinstance(axis_name, str) or not sends_by_gloo():
        return all_to_all(begin_together(rows, axis_name), axis_name)
    worker = lax.axis_index(axis_name)
    received = rows  # a worker keeps its own row
    for receivers, halves in one_way_rounds(workers):
        # Of an odd number of words, both halves have the one in the middle.
        size = words if halves is None else -(-words // 2)
        starts = jnp.array(halves or (0,) * workers) * (words - size)
        receiver, sender = (jnp.array(x)[worker] for x in (receivers, np.argsort(receivers)))
        row = lax.dynamic_slice(rows, (receiver, starts[worker]), (1, size))
        row = lax.ppermute(row, axis_name, list(enumerate(receivers)))
        received = lax.dynamic_update_slice(received, row, (sender, starts[sender]))
    return received


class Round(NamedTuple):
    """Each worker sends to one other and receives from one other."""

    receivers: tuple[int, ...]  # of each worker
    halves: tuple[int, ...] | None  # which half of its row each worker sends; None: all of it


def one_way_rounds(workers: int) -> list[Round]:
    """Rounds in which no two workers send to each other; after all, each has sent to each.

    In most rounds each worker sends to the one that is d places further. This is one-way unless d
    is half of the workers. So if their number is even, three connections of each worker are taken
    together: to both neighbours on the ring, and to the worker opposite. Any two of the three form
    cycles. Each cycle is followed once in each direction, with half a row each time.

    Args:
      workers: At least 3.
    """
    halves: list[Round] = [] if workers % 2 else _half_rounds(workers)
    together = (1, workers // 2, workers - 1) if halves else ()
    distances = [d for d in range(1, workers) if d not in together]
    whole = [tuple((one + d) % workers for one in range(workers)) for d in distances]
    return [Round(receivers, None) for receivers in whole] + halves


def _half_rounds(workers: int) -> list[Round]:
    everyone = range(workers)
    right = [one ^ 1 for one in everyone]
    left = [(one + 1 if one % 2 else one - 1) % workers for one in everyone]
    opposite = [(one + workers // 2) % workers for one in everyone]
    sent: Counter[tuple[int, int]] = Counter()
    rounds = []
    for first, second in combinations((right, left, opposite), 2):
        forward = _along_cycles(first, second)
        for receivers in (forward, tuple(np.argsort(forward).tolist())):
            pairs = list(enumerate(receivers))
            rounds.append(Round(receivers, tuple(sent[pair] for pair in pairs)))
            sent.update(pairs)
    return rounds


def _along_cycles(first: list[int], second: list[int]) -> tuple[int, ...]:
    """The next worker of each, where partners of `first` and of `second` follow in turn."""
    following: dict[int, int] = {}
    for one in range(len(first)):
        while one not in following:
            partner = first[one]
            following[one], following[partner] = partner, second[partner]
            one = second[partner]
    return tuple(following[one] for one in range(len(first)))
