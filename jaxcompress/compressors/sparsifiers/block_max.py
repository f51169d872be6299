"""Keeps the largest entry of every block: the fastest sparsifier."""

from jaxcompress.base import Compressor, parseable
from jaxcompress.collectives.dense import dense
from jaxcompress.compressors.builders.sparse import sparse
from jaxcompress.ops.argument_checks import shown
from jaxcompress.ops.selection import block_argmax, take_entries

LARGEST_BLOCK = 2**16


@parseable
def block_max(block: int = 128, inner: Compressor = dense()) -> Compressor:
    """Keeps the entry of each block that is largest in magnitude: a density of ``1 / block``.

    The flattened array is cut into rows of `block` entries, the last one padded with zeros. An
    array smaller than a block is one row. One pass over memory finds the indices: an integer holds
    the magnitude in its high bits and the index in its low bits, and the maximum is taken. So
    magnitudes are compared by their upper ``23 - ceil(log2(block))`` mantissa bits (16 for a block
    of 128). Of equal ones the first is kept. The values themselves travel as `inner` sends them.

    How it travels: one value per block by `inner`, and one index of ``ceil(log2(block))`` bits: 7
    for 128. With ``inner=qsgd(8)`` that is 15 bits, and one scale per 512 values: 270 times fewer
    bits than dense float32.

    Guarantees: ``|residual|^2 <= (1 - delta) |x|^2`` with an exact `inner` and
    ``delta = (1 - 2^-(22 - ceil(log2(row)))) / row``. A row has `block` entries, or those of the
    array if it is smaller. Biased: use it inside `error_feedback`.

    Args:
      block: Entries in a block, from 2 to 65,536; CPUs search multiples of 8 fastest.
      inner: How the values travel: ``dense()`` unchanged, ``cast("bfloat16")``, ``qsgd(8)``.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `block` is out of its range, or `inner` has no codec.

    Example:
      >>> block_max(128)
      block_max()
    """
    if isinstance(block, bool) or not isinstance(block, int) or not 2 <= block <= LARGEST_BLOCK:
        raise ValueError(
            "block is the number of entries of which one is kept, an integer from 2 to"
            f" {LARGEST_BLOCK}: its index has to fit the lower bits of a float32's mantissa; got"
            f" {shown(block)}."
        )

    def select(key, rows):
        del key
        return take_entries(rows, block_argmax(rows))

    return sparse(select, inner, lambda length: 1, block)
