"""Arrays of any number of axes seen as matrices: rows and columns for selection, and the cut that low rank needs."""

import math
from typing import Any


def rows_and_columns(x: Any) -> tuple[int, int]:
    """``(n, m)``: the last axis, the outputs of a kernel, against all others; a vector is n x 1."""
    return (math.prod(x.shape[:-1]), x.shape[-1]) if len(x.shape) > 1 else (math.prod(x.shape), 1)


def low_rank_shape(x: Any, batch_axes: int = 0) -> tuple[int, int, int]:
    """``(batch, n, m)``: the axes but the first `batch_axes`, cut in two where ``n + m`` is least; a vector is n x 1.

    Thin factors of such a matrix have the fewest entries, and of equal cuts the last is taken. For convolutions with at
    least ``H W`` outputs that is ``(H W I) x O``, and for the kernels of an attention ``width x (heads * head width)``
    and its transpose: what one token adds to a gradient, its input times its error, has rank 1 in these matrices.
    """
    batch, kernel = x.shape[:batch_axes], x.shape[batch_axes:]
    if len(kernel) < 2:
        return math.prod(batch), math.prod(kernel), 1
    cuts = [(math.prod(kernel[:place]), math.prod(kernel[place:])) for place in range(len(kernel) - 1, 0, -1)]
    return math.prod(batch), *min(cuts, key=sum)
