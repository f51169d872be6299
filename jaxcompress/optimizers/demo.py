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

    DCT is the discrete cosine transform of each tile of 64 x 64 entries. Worker w computes::

        m_w  = decay m_w + g_w
        q_w  = the `kept` largest entries of DCT(m_w) in each tile
        m_w  = m_w - IDCT(q_w)
        step = -learning_rate (sign(IDCT(mean_w q_w)) + weight_decay p)

    The momentum is an error memory that decays. So this is `compress` of
    ``error_feedback(dct(block_top_k(kept / 4096, block=4096)), decay)``, followed by
    ``optax.scale_by_sign``. With a learning-rate schedule, the memory is rescaled as if every
    gradient had been multiplied by the learning rate of its step before it was added to the
    momentum. Like `compress`, `demo` takes the gradients of one worker, and returns an update that
    is the same on all workers.

    The sign of zero is zero. If no worker sends anything of a tile, the parameters of this tile do
    not change in that step, except by weight decay. This happens to tiles with a side below 64, and
    to vectors, which have tiles of 64 entries: `dct` puts several such tiles into one block, and
    only the `kept` largest coefficients of the block are sent.

    The authors' code differs in three places. It divides the sum of a coefficient by the number of
    workers that sent this coefficient, not by the number of all workers: where workers send
    different coefficients, a sign can differ. The side of a tile is the largest divisor of the
    array's side that is at most 64. It sends 32 coefficients of each tile, however small the tile
    is.

    How it travels: 32 indices of 12 bits and 32 values of 32 bits for each 4,096 parameters: 0.34
    bits per parameter and step. With more than four workers, the messages usually travel in two
    phases, which select coefficients a second time, from the average: see `two_phase`.

    Guarantees: replicas are equal to the last bit. With ``kept=4096`` it is
    ``optax.sign_sgd(learning_rate)`` on averaged gradients: from about 1,490 on, a message is no
    longer half as long as its array, so `compress` sends gradients dense, without a momentum.

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
