"""Views of arrays as matrices: rows and columns for selection, and the cut for low rank."""

import math
from typing import Any


def rows_and_columns(x: Any) -> tuple[int, int]:
    """``(n, m)``: all axes but the last, against the last, its outputs; vectors are n x 1."""
    return (math.prod(x.shape[:-1]), x.shape[-1]) if len(x.shape) > 1 else (math.prod(x.shape), 1)


def low_rank_shape(x: Any, batch_axes: int = 0) -> tuple[int, int, int]:
    """``(batch, n, m)``: the axes after `batch_axes`, cut in two where ``n + m`` is least.

    Thin factors of such a matrix have the fewest entries. Of equal cuts the last is taken, and a
    vector is n x 1. Convolutions with at least ``H W`` outputs become ``(H W I) x O``. The kernels
    of attention become ``width x (heads * head width)`` and its transpose. In these matrices, what
    one token adds to a gradient, its input times its error, has rank 1.
    """
    batch, kernel = x.shape[:batch_axes], x.shape[batch_axes:]
    if len(kernel) < 2:
        return math.prod(batch), math.prod(kernel), 1
    cuts = [
        (math.prod(kernel[:place]), math.prod(kernel[place:]))
        for place in range(len(kernel) - 1, 0, -1)
    ]
    return math.prod(batch), *min(cuts, key=sum)
