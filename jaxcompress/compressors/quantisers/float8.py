"""Eight-bit floating point with a scale a group."""

import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, expressible
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.groups import check_group, in_groups, maxima, safe_scale, shares

FORMATS = {"e4m3": jnp.float8_e4m3fn, "e5m2": jnp.float8_e5m2}


@expressible
def float8(format: str = "e4m3", group: int = 1024) -> Compressor:
    """Rounds every entry to a float of 8 bits, after scaling the largest of its group to the largest of the format.

    ``sent = scale / F * float8(x F / scale)`` with ``scale = max |x|`` of the group and the format's largest number F:
    448 for ``"e4m3"`` (3 bits of mantissa), 57,344 for ``"e5m2"`` (2 bits, and a range 2^14 times wider).

    How it travels: a byte an entry and a float32 a group; beyond a few workers in two phases (see `gathered`).

    Guarantees, for float32 in its normal range: ``|x_i - sent_i| <= max(u |x_i|, t scale)`` with ``u = 2^-4`` and ``t =
    2^-10 / 448`` for e4m3, ``u = 2^-3`` and ``t = 2^-17 / 57,344`` for e5m2; so ``|x - sent|^2 <= (u^2 + t^2 group)
    |x|^2``. Biased a little, to nearest: use it inside `error_feedback`. Zeros stay zeros. A group with an infinite or
    NaN entry decodes to NaN.

    Args:
      format: ``"e4m3"`` or ``"e5m2"``.
      group: Entries that share a scale, at least 1.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> float8("e5m2").expression
      "float8(format='e5m2')"

    References:
      Micikevicius et al., `FP8 Formats for Deep Learning <https://arxiv.org/abs/2209.05433>`_, 2022
    """
    if format not in FORMATS:
        raise ValueError(f"format is a float of 8 bits, one of {', '.join(map(repr, FORMATS))}; got {format!r}.")
    check_group(group)
    dtype = FORMATS[format]
    largest = float(jnp.finfo(dtype).max)

    def encode(key, x):
        del key
        groups = in_groups(x.astype(jnp.float32), group)
        scale = safe_scale(maxima(groups), largest)
        return (shares(groups, scale) * largest).ravel()[: x.size].astype(dtype), scale[:, 0]

    def decode(message, like):
        entries, scale = message
        value = in_groups(entries.astype(jnp.float32), group) * (scale[:, None] / largest)
        return value.ravel()[: like.size].reshape(like.shape).astype(like.dtype)

    return gathered(Codec(encode, decode, piece=group))
