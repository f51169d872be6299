"""Rows of largest norm travel whole; indices, bits and inner codecs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, mean_over_workers, random_updates, run

from jaxcompress import cast, dense, error_feedback, qsgd, sparse_rows, top_k
from jaxcompress.ops.index_coding import index_words


def rows_of_five(density=0.3, inner=dense()):
    return sparse_rows(
        lambda x: x.reshape(-1, 5), lambda rows, like: rows.reshape(like.shape), density, inner
    )


def numpy_kept(x, kept):
    rows = np.asarray(x, np.float64).reshape(len(x), -1, 5)
    out = np.zeros_like(rows)
    for one, sent in zip(rows, out, strict=True):
        indices = np.argsort(-np.square(one).sum(axis=1), kind="stable")[:kept]
        sent[indices] = one[indices]
    return out.reshape(x.shape)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_rows_of_largest_norm_are_sent_as_they_are(dtype):
    updates = random_updates(0, jnp.zeros((10, 5), dtype))
    outcome = run(rows_of_five(), updates, ())
    np.testing.assert_array_equal(np.asarray(outcome.sent, np.float64), numpy_kept(updates, 3))
    assert_close(outcome.mean[0], jnp.asarray(mean_over_workers(outcome.sent), dtype))


@pytest.mark.parametrize(
    "inner", [dense(), cast("bfloat16"), qsgd(8)], ids=lambda inner: repr(inner)
)
def test_bits_are_the_entries_by_inner_and_a_place_a_row(inner):
    like = jax.ShapeDtypeStruct((100, 5), jnp.float32)
    values = inner.message_bits(jax.ShapeDtypeStruct((150,), jnp.float32))
    assert rows_of_five(inner=inner).message_bits(like) == values + 32 * index_words(30, 100)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_norms_of_tiny_and_huge_entries_are_compared(size):
    updates = random_updates(1, jnp.zeros((10, 5))) * size
    assert_close(
        run(rows_of_five(), updates, ()).sent / size,
        jnp.asarray(numpy_kept(updates, 3) / size, jnp.float32),
    )


def test_a_row_with_a_nan_is_seen():
    updates = jnp.ones((2, 10, 5)).at[0, 7, 2].set(jnp.nan)
    assert np.isnan(np.asarray(run(rows_of_five(0.1), updates, ()).mean[0])).any()


def test_an_inner_without_a_codec_is_refused():
    with pytest.raises(ValueError, match="a sparsifier needs an inner compressor with a codec"):
        rows_of_five(inner=error_feedback(top_k(0.1)))
