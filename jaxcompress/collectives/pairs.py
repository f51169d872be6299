"""Messages between pairs of workers, along a fixed cycle of matchings."""

from typing import Any

import jax
from jax import lax

from jaxcompress._compat import axis_size
from jaxcompress.ops.serialization import from_words, to_words


def matchings(workers: int) -> tuple[tuple[int, ...], ...]:
    """The cycle: for each of its matchings the partner of every worker, itself if it is idle.

    For a power of two, workers i and ``i XOR 2^k`` are partners in matching k. If all pairs take
    their mean, all workers have the mean of all after these ``log2(workers)`` matchings.

    For any other number everyone meets everyone once in a cycle, in ``workers - 1`` matchings, or
    in ``workers`` of them with one worker idle if the number is odd. They alternate from both ends
    of the list. In its own order a partner's number would grow by one each time, and an outer
    momentum, as that of `no_loco`, would drive the workers apart.
    """
    if workers & (workers - 1) == 0:
        distances = [2**k for k in range(workers.bit_length() - 1)]
        cycle = (tuple(one ^ distance for one in range(workers)) for distance in distances)
        return tuple(cycle) or ((0,),)
    odd = workers - 1 + workers % 2
    turns = (place // 2 if place % 2 == 0 else odd - 1 - place // 2 for place in range(odd))
    return tuple(
        tuple(_partner(worker, turn, workers) for worker in range(workers)) for turn in turns
    )


def partners_message(message: Any, exchange: jax.Array, axis_name: str) -> tuple[Any, int]:
    """The message of this worker's partner, its own if it is idle, and the size of one in bits.

    It is one permute of a buffer of words. A compiled permute knows its pairs, so the program has
    one for each matching of the cycle. `exchange`, an int32 () that is the same on all workers,
    selects one. A long buffer is filled to whole lanes, as all buffers of words are.
    """
    workers = axis_size(axis_name)
    if workers == 1:
        return message, 0
    words = to_words(message)

    def along(partners):
        return lambda words: lax.ppermute(words, axis_name, list(enumerate(partners)))

    cycle = matchings(workers)
    theirs = lax.switch(exchange % len(cycle), [along(partners) for partners in cycle], words)
    return from_words(theirs, message), 32 * words.size


def _partner(worker: int, turn: int, workers: int) -> int:
    """Partners i and j have ``i + j = turn`` modulo an odd number of workers.

    Of an even number, the last one stands aside, and meets the one whose partner would be itself.
    """
    odd = workers - 1 + workers % 2
    if worker == odd:
        return turn * (odd + 1) // 2 % odd
    partner = (turn - worker) % odd
    return odd if partner == worker and odd < workers else partner
