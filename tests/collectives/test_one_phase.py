"""One all-gather, given by name: however many workers there are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    WORKERS,
    assert_close,
    assert_same_bits,
    mean_over_workers,
    random_updates,
    run,
    runner,
)

import jaxcompress
from jaxcompress import block_top_k, one_phase, power_sgd, qsgd, sign, top_k

ONE = one_phase(sign(32))


def test_it_gathers_where_two_phases_would_send_less():
    size = 64 * 32 * 8
    updates = random_updates(0, jnp.zeros(size), 8)
    for counted in jaxcompress.traffic(runner(ONE, 8, "shard_map"), jax.random.key(0), updates, ()):
        assert [each.operation for each in counted.collectives] == ["all-gather"]
        assert counted.wire_bytes == 7 * (size // 8 + size // 32 * 4)


def test_it_is_what_a_scheme_does_by_itself_for_few_workers():
    updates = random_updates(1, {"a": jnp.zeros(100), "b": jnp.zeros((3, 50))}, WORKERS)
    plain, given = (run(one, updates, ()) for one in (sign(32), ONE))
    assert_same_bits(given.mean, plain.mean)
    assert_same_bits(given.sent, plain.sent)


def test_the_mean_and_the_residuals_make_the_updates():
    updates = random_updates(2, jnp.zeros(100))
    outcome = run(one_phase(qsgd(4)), updates, ())
    kept = outcome.mean[0] + mean_over_workers(outcome.residual)
    assert_close(kept, mean_over_workers(updates).astype(np.float32))
    assert np.any(outcome.residual)


@pytest.mark.parametrize("inner", [block_top_k(0.1), top_k(0.1), qsgd(2), qsgd(8)], ids=repr)
def test_it_is_a_contraction_and_a_sparsifier_as_inner_is(inner):
    route = one_phase(inner)
    assert (route.contracts, route.sparsifies) == (inner.contracts, inner.sparsifies)


def test_a_compressor_without_a_codec_is_refused():
    with pytest.raises(
        ValueError,
        match=r"one_phase needs an inner compressor with a codec, and power_sgd\(2\) has",
    ):
        one_phase(power_sgd(2))


def test_its_codec_serves_as_inner():
    assert (
        repr(jaxcompress.top_k(0.1, inner=one_phase(qsgd(8))))
        == "top_k(0.1, inner=one_phase(qsgd(8)))"
    )
    assert ONE.codec is not None and ONE.codec.chunk == 32
