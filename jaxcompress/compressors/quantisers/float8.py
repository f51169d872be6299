"""Eight-bit floating point with one scale per group."""

import jax.numpy as jnp

from jaxcompress.base import Codec, Compressor, parseable
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.quantization import (
    absmax,
    check_group,
    in_groups,
    rounded_to,
    safe_scale,
    scaled,
    times_scale,
)

FORMATS = {"e4m3": jnp.float8_e4m3fn, "e5m2": jnp.float8_e5m2}


@parseable
def float8(format: str = "e4m3", group: int = 1024) -> Compressor:
    """Rounds every entry to an 8-bit float, scaled so that its group fills the format's range.

    ``sent = scale / F * float8(x F / scale)`` and ``residual = x - sent``, with ``scale = max |x|``
    of the group. F is the format's largest number: 448 for ``"e4m3"`` (3 bits of mantissa), 57,344
    for ``"e5m2"`` (2 bits of mantissa, and a range 2^14 times wider).

    How it travels: one byte per entry and one float32 per group; with more workers in two phases
    (see `gathered`).

    Guarantees, for float32 in its normal range: ``|residual_i| <= max(u |x_i|, t scale)``, so
    ``|residual|^2 <= (u^2 + t^2 group) |x|^2``. For e4m3, ``u = 2^-4`` and ``t = 2^-10 / 448``; for
    e5m2, ``u = 2^-3`` and ``t = 2^-17 / 57,344``. Slightly biased, since it rounds to nearest: use
    it inside `error_feedback`. Zeros stay zeros. A group with an infinite or NaN entry decodes to
    NaN.

    Args:
      format: ``"e4m3"`` or ``"e5m2"``.
      group: Entries that share a scale, at least 1.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if an argument is out of its range.

    Example:
      >>> float8("e5m2")
      float8(format='e5m2')

    References:
      Micikevicius et al., `FP8 Formats for Deep Learning <https://arxiv.org/abs/2209.05433>`_, 2022
    """
    if format not in FORMATS:
        raise ValueError(
            f"format is a float of 8 bits, one of {', '.join(map(repr, FORMATS))}; got {format!r}."
        )
    check_group(group)
    dtype = FORMATS[format]
    largest = float(jnp.finfo(dtype).max)

    def encode(key, x):
        del key
        groups = in_groups(x.astype(jnp.float32), group)
        scale = safe_scale(absmax(groups), largest)
        entries = (scaled(groups, scale) * largest).ravel()[: x.size]
        return rounded_to(dtype, entries), scale[:, 0]

    def decode(message, like):
        entries, scale = message
        return times_scale(entries.astype(jnp.float32), scale / largest, like, group)

    return gathered(Codec(encode, decode, chunk=group))
