"""Every entry with the same probability, the same ones on all workers."""

import jax.numpy as jnp

from jaxcompress.base import Compressor, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.sketched import sketched
from jaxcompress.ops.checks import check_flag, check_forgets
from jaxcompress.ops.sampling import bernoulli_places


@expressible
def bernoulli(probability: float, inner: Compressor = dense(), rescale: bool = False) -> Compressor:
    """Keeps each entry with this probability, independently of all others, by a key that all workers share.

    ``sent_i = b_i x_i`` with ``P(b_i = 1) = p``; with `rescale` ``sent_i = b_i x_i / p``. How many are kept varies
    (`random_k` keeps a fixed number), so the message has room for six standard deviations more than the mean; it is
    full in one of 10^9 steps, and what finds no room is not sent.

    How it travels: values in ``ceil(n p + 6 sqrt(n p (1 - p)) + 6 (1 - p))`` slots, averaged by `inner`; the places
    follow from the key. A plain all-reduce carries them, and nothing grows with the workers.

    Guarantees: without `rescale` ``E|x - sent|^2 = (1 - p) |x|^2``: use it inside `error_feedback`. With `rescale`
    unbiased up to that rare step, and ``E|x - sent|^2 = (1/p - 1) |x|^2``: by itself, or inside `control_variate`, and
    not inside `error_feedback`, where such a variance diverges and the plain form contracts. At probability 1 both are
    dense.

    Args:
      probability: Of being kept, in (0, 1].
      inner: How the values travel: ``dense()``, ``cast("bfloat16")``, ``qsgd(8)``.
      rescale: Divides by the probability.

    Returns:
      A `Compressor` with the state of `inner`.

    Raises:
      ValueError: if `probability` is not in (0, 1], or `inner` has a memory.

    Example:
      >>> bernoulli(0.01).expression
      'bernoulli(0.01)'

    References:
      Khirirat et al., `Distributed Learning with Compressed Gradients <https://arxiv.org/abs/1806.06573>`_, 2018
    """
    if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 < probability <= 1:
        raise ValueError(f"probability is the chance of an entry to be kept, in (0, 1]; got {probability!r}.")
    check_flag("rescale", rescale)
    check_forgets("bernoulli", inner, "sends other places then")

    def project(key, x):
        return x.ravel().at[bernoulli_places(key, probability, x.size)].get(mode="fill", fill_value=0)

    def lift(key, image, like):
        values = image / probability if rescale else image
        places = bernoulli_places(key, probability, like.size)
        flat = jnp.zeros(like.size, like.dtype)
        flat = flat.at[places].set(values.astype(like.dtype), mode="drop", unique_indices=True)
        return flat.reshape(like.shape)

    return sketched(project, lift, inner)
