"""What a pair of workers does when it meets: the record of a rule, and the plain mean."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class PairRule(NamedTuple):
    """What two workers send each other, and how each changes its parameters then.

    Law: if ``x_i`` becomes ``x_i + c_i``, then ``c_i + c_j == 0`` for partners i and j, and
    ``c_i == 0`` if i receives what it sent. So the mean over workers stays.
    """

    init: Callable[[Any], Any]  # params -> what a worker keeps; the same for all workers
    # (params, kept, send, exchange, turn) -> (params, kept, bits). `send(message)` returns the
    # partner's message, or the own one if nobody is met; whether this worker counts as the first of
    # the pair, a bool (); and the size of the message in bits. `exchange` int32 () counts the
    # exchanges, `turn` the cycles of matchings, modulo `turns`.
    meet: Callable[..., tuple[Any, Any, int]]
    turns: int = 1  # different kinds of cycles, which alternate
    workers: int | None = None  # that it was made for; None: any number


def pair_mean() -> PairRule:
    """The two workers of a pair send their parameters and take their mean.

    How it travels: one permute of 32 bits for each parameter in float32, half of what a worker
    sends in a dense all-reduce between many. It does not grow with the workers.

    Guarantees: both workers have the same bits afterwards. With 2^k workers and no steps in
    between, all are equal after k exchanges.

    Returns:
      A `PairRule` for `gossip`.

    Example:
      >>> import optax
      >>> from jaxcompress import gossip
      >>> optimizer = gossip(optax.sgd(0.1), pair_mean())

    References:
      Lian et al., `Can Decentralized Algorithms Outperform Centralized Algorithms?
      <https://arxiv.org/abs/1705.09056>`_, 2017

      Ying et al., `Exponential Graph is Provably Efficient for Decentralized Deep Training
      <https://arxiv.org/abs/2110.13363>`_, 2021, whose workers also meet one partner at a time
    """

    def meet(params, kept, send, exchange, turn):
        del exchange, turn
        theirs, _, bits = send(params)
        return mean_of_pair(params, theirs), kept, bits

    return PairRule(lambda params: (), meet)


def mean_of_pair(own: Any, theirs: Any) -> Any:
    """The mean of two trees: the same bits on both workers, and `own` where both are equal."""
    return jax.tree.map(lambda x, y: 0.5 * x + 0.5 * y, own, theirs)
