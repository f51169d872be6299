"""Published methods with a period, each one line of `local_updates` or `gossip`."""

import optax
from optax import contrib

from jaxcompress.base import AxisName
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.quantisers.integer import int2
from jaxcompress.compressors.sparsifiers.block_top_k import block_top_k
from jaxcompress.feedback.error_feedback import error_feedback
from jaxcompress.periods.gossip import gossip
from jaxcompress.periods.local_updates import local_updates
from jaxcompress.periods.own_steps import Period
from jaxcompress.periods.pair_rules import pair_mean
from jaxcompress.transform import compress


def local_sgd(
    learning_rate: optax.ScalarOrSchedule, period: Period = 8, axis_name: AxisName = "data"
) -> optax.GradientTransformationExtraArgs:
    """Local SGD: every period the parameters become the mean of the workers' parameters.

    Args:
      learning_rate: Of each worker's SGD.
      period: Inner steps between two synchronisations.
      axis_name: The axis of the workers.

    Returns:
      A `local_updates`.

    Raises:
      ValueError: as `local_updates`.

    References:
      Stich, `Local SGD Converges Fast and Communicates Little
      <https://arxiv.org/abs/1805.09767>`_, 2018
    """
    return local_updates(
        optax.sgd(learning_rate), optax.sgd(1.0), compress(dense(), axis_name), period, axis_name
    )


def diloco(
    inner: optax.GradientTransformation,
    period: Period = 500,
    axis_name: AxisName = "data",
    *,
    outer_learning_rate: optax.ScalarOrSchedule = 0.7,
) -> optax.GradientTransformationExtraArgs:
    """DiLoCo: AdamW on each worker, Nesterov momentum on the averaged drift, sent dense.

    Nesterov with rate 0.7 and momentum 0.9 was the best of the paper's outer optimizers. Short
    periods want a smaller rate. To compress the drift, write the same `local_updates` with another
    `compress`.

    Args:
      inner: Each worker's optimizer; in the paper ``optax.adamw(4e-4, weight_decay=0.1)``.
      period: Inner steps between two synchronisations.
      axis_name: The axis of the workers.
      outer_learning_rate: Of the outer Nesterov momentum.

    Returns:
      A `local_updates`.

    Raises:
      ValueError: as `local_updates`.

    References:
      Douillard et al., `DiLoCo <https://arxiv.org/abs/2311.08105>`_, 2023
    """
    outer = optax.sgd(outer_learning_rate, momentum=0.9, nesterov=True)
    return local_updates(inner, outer, compress(dense(), axis_name), period, axis_name)


def sparse_loco(
    inner: optax.GradientTransformation, period: Period = 30, axis_name: AxisName = "data"
) -> optax.GradientTransformationExtraArgs:
    """SparseLoCo: 64 of every 4,096 entries of the drift, as -s, 0 or s, and a decaying memory.

    The error memory, which decays by 0.95 in every period, replaces the outer momentum, so the
    outer step adds the average itself.

    How it travels: 64 indices of 12 bits and 64 values of 1.6 bits for each 4,096 entries, and a
    scale of 16 bits for each 32 values: 0.22 bits per parameter and period. (The paper's values
    take 2 bits.)

    Args:
      inner: Each worker's optimizer; in the paper ``optax.adamw(4e-4, weight_decay=0.1)``.
      period: Inner steps between two synchronisations; 15 to 100 in the paper.
      axis_name: The axis of the workers.

    Returns:
      A `local_updates`.

    Raises:
      ValueError: as `local_updates`.

    References:
      Sarfi et al., `Communication Efficient LLM Pre-training with SparseLoCo
      <https://arxiv.org/abs/2508.15706>`_, 2025
    """
    compressor = error_feedback(block_top_k(64 / 4096, block=4096, inner=int2()), decay=0.95)
    return local_updates(inner, optax.sgd(1.0), compress(compressor, axis_name), period, axis_name)


def mu_loco(
    learning_rate: optax.ScalarOrSchedule, period: Period = 30, axis_name: AxisName = "data"
) -> optax.GradientTransformationExtraArgs:
    """MuLoCo: Muon on each worker, the drift in three levels with a memory, and Nesterov momentum.

    Muon's drift loses less in few bits than AdamW's. Muon updates matrices; other arrays take
    AdamW, as in ``optax.contrib.muon``.

    How it travels: 1.6 bits per parameter and period, and a scale of 16 bits for each 128 of them,
    where the paper takes 2 to 4 bits.

    Args:
      learning_rate: Of each worker's Muon.
      period: Inner steps between two synchronisations.
      axis_name: The axis of the workers.

    Returns:
      A `local_updates`.

    Raises:
      ValueError: as `local_updates`.

    References:
      Thérien et al., `MuLoCo <https://arxiv.org/abs/2505.23725>`_, 2025
    """
    outer = optax.sgd(0.8, momentum=0.9, nesterov=True)
    link = compress(error_feedback(int2(group=128), decay=0.9), axis_name)
    return local_updates(contrib.muon(learning_rate), outer, link, period, axis_name)


def no_loco(
    inner: optax.GradientTransformation,
    period: Period = 50,
    axis_name: str = "data",
    *,
    outer_learning_rate: optax.ScalarOrSchedule = 0.7,
) -> optax.GradientTransformationExtraArgs:
    """NoLoCo: DiLoCo without an all-reduce. Pairs take their mean, and each worker an outer step.

    Worker i has slow parameters s_i and an outer momentum m_i of its own. After a period::

        m_i = 0.5 m_i + rate (mean of the pair's x - s_i)    s_i = s_i + m_i    x_i = s_i

    The paper sends the drifts ``x_i - s_i`` and the slow parameters, with a rate for each, and sets
    both rates to 0.7. With one rate the two add up to x, so only x travels. The paper draws
    partners at random; here they follow a fixed cycle. With rates up to 0.8 the workers' distance
    from their mean decays without gradients; above, some numbers of workers drift apart.

    How it travels: one permute of 32 bits per parameter and period.

    Args:
      inner: Each worker's optimizer; in the paper Adam.
      period: Inner steps between two exchanges; 50 to 100 in the paper.
      axis_name: The axis of the workers, one axis of the mesh.
      outer_learning_rate: The rate of the outer step.

    Returns:
      A `gossip`.

    Raises:
      ValueError: as `gossip`.

    References:
      Kolehmainen et al., `NoLoCo: No-all-reduce Low Communication Training Method for Large Models
      <https://arxiv.org/abs/2506.10911>`_, 2025
    """
    outer = optax.sgd(outer_learning_rate, momentum=0.5)
    return gossip(inner, pair_mean(), period, axis_name, outer=outer)
