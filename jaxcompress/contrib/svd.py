"""The best low-rank approximation of each worker's own array, exactly."""

import jax.numpy as jnp
from jax import lax

from jaxcompress.base import Codec, Compressor, parseable
from jaxcompress.collectives.gathered import gathered
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.matrix_view import low_rank_shape


@parseable
def svd(rank: int) -> Compressor:
    """Sends the `rank` largest singular values of each array, with their vectors.

    ``residual = M - U_r S_r V_r^T``, where M is the worker's own n x m matrix, as in `power_sgd`.
    `svd` is a reference for `power_sgd`: it shows how much a low rank can keep at best. But it is
    slow, and its messages grow with the number of workers.

    How it travels: ``U_r S_r`` and ``V_r``, ``32 r (n + m)`` bits, all-gathered, since every worker
    has its own basis.

    Guarantees: ``|residual|^2`` is the sum of the squared singular values beyond `rank`, the least
    error of all matrices of that rank, and at most ``(1 - r / min(n, m)) |x|^2``. Biased: use it
    inside `error_feedback`. At full rank it is dense. An array with an infinite or NaN entry
    decodes to NaN.

    Args:
      rank: Singular values kept, at least 1; at most ``min(n, m)`` are used.

    Returns:
      A `Compressor` without state.

    Raises:
      ValueError: if `rank` is not an integer of at least 1.

    Example:
      >>> svd(2)
      svd(2)

    References:
      Eckart and Young, `The Approximation of One Matrix by Another of Lower Rank
      <https://doi.org/10.1007/BF02288367>`_, 1936

      Wang et al., `ATOMO: Communication-efficient Learning via Atomic Sparsification
      <https://arxiv.org/abs/1806.04090>`_, 2018
    """
    check_integer("rank", rank, 1, "the number of singular values kept")

    def encode(key, x):
        del key
        _, n, m = low_rank_shape(x)
        kept = min(rank, n, m)
        finite = jnp.all(jnp.isfinite(x))
        # LAPACK does not terminate on an infinite entry.
        matrix = jnp.where(finite, x.astype(jnp.float32), 0.0).reshape(n, m)
        left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
        return jnp.where(finite, left[:, :kept] * values[:kept], jnp.nan), right[:kept]

    def decode(message, like):
        # Full precision: accelerators round factors to bfloat16 by default.
        return (
            jnp.matmul(*message, precision=lax.Precision.HIGHEST)
            .reshape(like.shape)
            .astype(like.dtype)
        )

    return gathered(Codec(encode, decode))
