"""Every worker sends one row to every other: how gloo, on CPUs, keeps both directions busy."""

from collections import Counter
from itertools import combinations
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, UInt32

from jaxcompress._compat import all_to_all, axis_size, joined_processes, platform
from jaxcompress.base import AxisName
from jaxcompress.collectives.begin_together import LEAST_BYTES, begin_together
from jaxcompress.ops.serialization import WORD_BYTES


def exchange(
    rows: UInt32[Array, "workers words"], axis_name: AxisName
) -> UInt32[Array, "workers words"]:
    """Row i goes to worker i; returns one row from each worker, in their order.

    It is one all-to-all. Three or more processes on CPUs send long rows in `one_way_rounds`
    instead, one permute after the other: in an all-to-all, two workers that send to each other
    would take turns, since gloo lets a worker send only after the other's message has left.
    """
    workers, words = rows.shape
    short = words * WORD_BYTES < LEAST_BYTES
    if workers <= 2 or short or joined_processes() == 1 or platform() != "cpu":
        return all_to_all(begin_together(rows, axis_name), axis_name)
    worker = lax.axis_index(axis_name)
    half = -(-words // 2)  # of an odd number of words, both halves have the one in the middle
    received, message = rows, None  # a worker keeps its own row
    for receivers, halves in one_way_rounds(axis_size(axis_name)):
        starts = jnp.array([0 if second is None else second * (words - half) for second in halves])
        size = words if halves[0] is None else half
        own, sender = jnp.array(receivers)[worker], jnp.array(_inverse(receivers))[worker]
        row = lax.dynamic_slice(rows, (own, starts[worker]), (1, size))
        # One round after the other: rounds at the same time would meet on a link.
        row, message = lax.optimization_barrier((row, message))
        message = lax.ppermute(row, axis_name, list(enumerate(receivers)))
        received = lax.dynamic_update_slice(received, message, (sender, starts[sender]))
    return received


class Round(NamedTuple):
    """Each worker sends to one other and receives from one other."""

    receivers: tuple[int, ...]  # of each worker
    halves: tuple[int | None, ...]  # which half of its row each worker sends; None: all of it


def one_way_rounds(workers: int) -> list[Round]:
    """Rounds in which no two workers send to each other; after all, each has sent to each.

    In most rounds each worker sends to the one that is d places further. This is one-way unless d
    is half of an even number of workers. So these three connections of each worker, to the
    neighbours on a ring and across it, are taken together: any two of them make cycles, which are
    walked once in each direction. Thus every connection is used twice in each direction, for half
    a row each time.

    Args:
      workers: At least 3.
    """
    if workers % 2:
        distances = range(1, workers)
        across = []
    else:
        distances = [d for d in range(2, workers - 1) if d != workers // 2]
        across = _half_rounds(workers)
    further = [tuple((one + d) % workers for one in range(workers)) for d in distances]
    return [Round(receivers, (None,) * workers) for receivers in further] + across


def _half_rounds(workers: int) -> list[Round]:
    everyone = range(workers)
    right = [one ^ 1 for one in everyone]
    left = [(one + 1 if one % 2 else one - 1) % workers for one in everyone]
    opposite = [(one + workers // 2) % workers for one in everyone]
    sent: Counter[tuple[int, int]] = Counter()
    rounds = []
    for first, second in combinations((right, left, opposite), 2):
        forward = _along_cycles(first, second)
        for receivers in (forward, _inverse(forward)):
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


def _inverse(receivers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(receivers.index(one) for one in range(len(receivers)))
