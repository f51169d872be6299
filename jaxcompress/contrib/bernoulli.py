"""Keeps every entry with the same probability, the same entries on all workers."""

import jax.numpy as jnp

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.linear import linear
from jaxcompress.contrib.sampling import bernoulli_indices
from jaxcompress.ops.argument_checks import check_flag, check_fraction, check_stateless
from jaxcompress.ops.trees import in_dtype_of

# Below this the variance of the rescaled form, 1 / probability - 1, exceeds half of |x|^2.
MIN_RESCALED = 2 / 3


@parseable
def bernoulli(probability: float, inner: Compressor = dense(), rescale: bool = False) -> Compressor:
    """Keeps each entry independently with this probability, drawn by a key that all workers share.

    ``sent_i = b_i x_i`` with ``P(b_i = 1) = p``, or ``b_i x_i / p`` with `rescale`;
    ``residual = x - sent``. The number of kept entries varies (`random_k` keeps a fixed number). So
    the message has room for six standard deviations more entries than the mean. In one of 10^9
    steps it has too little room, and the excess entries are not sent.

    How it travels: values in ``ceil(n p + 6 sqrt(n p (1 - p)) + 6 (1 - p))`` slots, averaged by
    `inner`; the indices follow from the key. An all-reduce averages the values, and no message
    grows with the number of workers.

    Guarantees: without `rescale`, ``E|residual|^2 = (1 - p) |x|^2``: use it inside
    `error_feedback`. With `rescale` it is unbiased up to that rare step, and
    ``E|residual|^2 = (1/p - 1) |x|^2``: use it alone or inside `control_variate`. Below a
    probability of 2/3, `error_feedback` refuses the rescaled form, since the memory would diverge.
    At probability 1 both are dense. If a NaN is at an entry that is not drawn, the average does not
    contain it: use `apply_if_all_finite` to detect the NaN.

    Args:
      probability: The probability of being kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.
      rescale: Whether to divide kept entries by the probability.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `probability` is not in (0, 1], or `inner` has a memory.

    Example:
      >>> bernoulli(0.01)
      bernoulli(0.01)

    References:
      Khirirat et al., `Distributed Learning with Compressed Gradients
      <https://arxiv.org/abs/1806.06573>`_, 2018
    """
    check_fraction("probability", probability, "the chance of an entry to be kept")
    check_flag("rescale", rescale)
    check_stateless("bernoulli", inner)

    def project(key, x):
        return (
            x.ravel().at[bernoulli_indices(key, probability, x.size)].get(mode="fill", fill_value=0)
        )

    def lift(key, image, like):
        wide = image.astype(jnp.promote_types(image.dtype, jnp.float32))
        # In float16 a rescaled value may exceed the largest.
        values = in_dtype_of(wide / probability if rescale else wide, like)
        indices = bernoulli_indices(key, probability, like.size)
        flat = jnp.zeros(like.size, like.dtype)
        flat = flat.at[indices].set(values, mode="drop", unique_indices=True)
        return flat.reshape(like.shape)

    contracts = inner.contracts and not (rescale and probability < MIN_RESCALED)
    return linear(project, lift, inner)._replace(contracts=contracts, sparsifies=True)
