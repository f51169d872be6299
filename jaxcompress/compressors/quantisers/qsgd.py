"""Stochastic quantisation to evenly spaced levels."""

import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, expressible
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.groups import check_group, in_groups, maxima, norms, safe_scale, shares
from jaxcompress.ops.rounding import stochastic_round
from jaxcompress.ops.uniform import from_levels, pack_levels, steps_of

SCALES = {"max": maxima, "l2": norms}


@expressible
def qsgd(bits: int, group: int = 512, norm: str = "max") -> Compressor:
    """Rounds every entry at random to one of the ``2s + 1`` levels ``-s … s`` times ``scale / s``.

    ``sent_i = scale * sign(x_i) * xi_i / s`` with ``s = 2^(bits - 1) - 1`` and ``scale = max |x|`` over a group of
    entries, or its 2-norm, where ``xi_i`` is ``s |x_i| / scale`` rounded up or down at random so that ``E[sent] = x``.
    (The paper proves its bound for the 2-norm and runs its experiments with the maximum, whose error is smaller.)

    How it travels: `bits` bits an entry, packed, and a float32 scale a group; beyond a few workers in two phases (see
    `gathered`), since every worker's message would reach every other.

    Guarantees, for float32 in its normal range: unbiased; ``E|x - sent|^2 <= min(group / (4 s^2), sqrt(group) / s)
    |x|^2``. (For bfloat16 the decoded value is rounded to nearest, which is not.) Workers round independently. Zeros
    stay zeros. Entries beyond ``2^126 = 8.5e37`` count as that. A group with an infinite or NaN entry decodes to NaN.
    With groups of 512 that bound is below 1 from 5 bits on; with 4, 3 and 2 bits it is in groups of at most 195, 35 and
    3. Beyond it the noise may be larger than the update, and inside `error_feedback` the memory then grows from step to
    step: take `int4` or `int2` there, which round to nearest and contract, or ``control_variate(qsgd(2), 0.1)``.

    Args:
      bits: Bits of one entry, from 2 (levels -1, 0, 1) to 16.
      group: Entries that share a scale, at least 1.
      norm: The scale of a group: ``"max"``, or ``"l2"``, which leaves more entries at zero.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> qsgd(bits=8).expression
      'qsgd(8)'

    References:
      Alistarh et al., `QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding
      <https://arxiv.org/abs/1610.02132>`_, 2017
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= 16:
        raise ValueError(f"bits is the size of one entry, an integer from 2 to 16; got {bits!r}.")
    check_group(group)
    if norm not in SCALES:
        raise ValueError(f"norm is the scale of a group, one of {', '.join(map(repr, SCALES))}; got {norm!r}.")
    steps = steps_of(bits)

    def encode(key, x):
        groups = in_groups(x.astype(jnp.float32), group)
        scale = safe_scale(SCALES[norm](groups), steps)
        share = shares(groups, scale)
        level = jnp.sign(share) * stochastic_round(key, jnp.abs(share) * steps)
        return pack_levels(level, x.size, bits), scale[:, 0]

    def decode(message, like):
        words, scale = message
        return from_levels(words, scale, like, bits, group)

    return gathered(Codec(encode, decode, piece=group))
