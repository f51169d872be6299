"""One all-gather, given by name: however many workers there are."""

import jax
import jax.numpy as jnp
import pytest
from helpers import WORKERS, assert_same_bits, random_updates, run, runner

import jaxcompress
from jaxcompress import one_phase, power_sgd, qsgd, sign

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


def test_what_was_sent_and_the_rest_make_the_updates():
    updates = random_updates(2, jnp.zeros(100))

    def parts(x):
        reduced = one_phase(qsgd(4)).reduce(jax.random.key(0), x, (), "data")[0]
        return reduced.sent + reduced.rest

    assert jnp.allclose(jax.vmap(parts, axis_name="data")(updates), updates, atol=1e-6)


def test_a_compressor_without_a_codec_is_refused():
    with pytest.raises(ValueError, match=r"one_phase hands values to a codec, and power_sgd\(2\) has none"):
        one_phase(power_sgd(2))


def test_its_codec_serves_as_inner():
    assert jaxcompress.top_k(0.1, inner=one_phase(qsgd(8))).expression == "top_k(0.1, inner=one_phase(qsgd(8)))"
    assert ONE.codec is not None and ONE.codec.piece == 32
