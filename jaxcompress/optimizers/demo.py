"""DeMo: a momentum on each worker, of which the largest cosine coefficients are sent."""

from typing import Any

import optax

from jaxcompress.base import AxisName
from jaxcompress.compressors.sparsifiers.block_top_k import block_top_k
from jaxcompress.compressors.sparsifiers.dct import dct
from jaxcompress.feedback.error_feedback import error_feedback
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.optimizers.onebit_common import with_learning_rate
from jaxcompress.transform import compress

TILE = 64


def demo(
    learning_rate: optax.ScalarOrSchedule,
    *,
    kept: int = 32,
    decay: int | float = 0.999,
    weight_decay: int | float = 0.0,
    mask: Any = None,
    axis_name: AxisName = "data",
) -> optax.GradientTransformationExtraArgs:
    """DeMo: sends a part of each worker's momentum, and steps by the signs of the average.

    With the cosine transform DCT of tiles of 64 x 64, worker w computes::

        m_w  = decay m_w + g_w
        q_w  = the `kept` largest entries of DCT(m_w) in each tile
        m_w  = m_w - IDCT(q_w)
        step = -learning_rate (sign(IDCT(mean_w q_w)) + weight_decay p)

    The momentum is an error memory that decays. So this is `compress` of
    ``error_feedback(dct(block_top_k(kept / 4096, block=4096)), decay)``, followed by
    ``optax.scale_by_sign``. With a schedule the memory is rescaled, as if every gradient entered
    the momentum times its learning rate. Like `compress`, it takes local gradients and gives the
    same update on all workers.

    The sign of zero is zero. A tile of which no worker sends anything does not move in that step,
    but for its weight decay. This happens to tiles with a side below 64, and to vectors, which have
    tiles of 64 entries: `dct` puts several of them into one block, whose `kept` largest are sent.

    The authors' code differs in three places. It divides a coefficient by the number of workers
    that sent it, not by that of all workers: where workers send different coefficients, a sign can
    differ. A side of its tiles is the largest divisor of the array's side up to 64. Of each tile
    it sends 32 coefficients, however small the tile is.

    How it travels: 32 indices of 12 bits and 32 values of 32 bits for each 4,096 parameters: 0.34
    bits per parameter and step. Among more than four workers it usually takes two phases, which
    select once more, in the average: see `two_phase`.

    Guarantees: replicas are equal to the last bit. With ``kept=4096`` it is
    ``optax.sign_sgd(learning_rate)`` on averaged gradients.

    Args:
      learning_rate: A number or a schedule.
      kept: How many of 4,096 coefficients are sent, from 1 to 4,096.
      decay: The fraction of the momentum that is kept, in (0, 1].
      weight_decay: Factor of the parameters, added to the signs before the learning rate.
      mask: Which parameters decay, as in ``optax.adamw``.
      axis_name: The axis of the workers.

    Returns:
      An Optax transformation. Its state holds `PerWorker` parts; `init_state` places it on a mesh.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> optimizer = demo(1e-3, weight_decay=0.1)

    References:
      Peng et al., `DeMo: Decoupled Momentum Optimization
      <https://arxiv.org/abs/2411.19870>`_, 2024
    """
    block = TILE * TILE
    check_integer("kept", kept, 1, f"how many of {block} coefficients are sent", block)
    schedule = learning_rate if callable(learning_rate) else None
    coefficients = dct(block_top_k(kept / block, block=block), TILE)
    memory = error_feedback(coefficients, decay, learning_rate=schedule)
    signs = optax.chain(compress(memory, axis_name), optax.scale_by_sign())
    return with_learning_rate(signs, learning_rate, weight_decay, mask)
