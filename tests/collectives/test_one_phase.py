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
from jaxcompress import block_max, block_top_k, one_phase, power_sgd, qsgd, sign, top_k

ONE = one_phase(sign(32))
# Long and short arrays, with and without a row that is not full, of two dtypes.
TREE = {
    "long": jnp.zeros((40, 33)),
    "longer": jnp.zeros(5000),
    "rows": jnp.zeros((64, 64)),
    "short": jnp.zeros(7),
    "alike": jnp.zeros(7),
    "half": jnp.zeros((50, 30), jnp.bfloat16),
    "half rows": jnp.zeros((16, 64), jnp.bfloat16),
    "empty": jnp.zeros((0, 3)),
}


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


@pytest.fixture
def on_accelerators(monkeypatch):
    """Traces what other platforms than CPUs compile."""
    for module in ("one_phase", "two_phase"):
        monkeypatch.setattr(f"jaxcompress.collectives.{module}.on_cpus", lambda: False)


def by_vmap(compressor, updates):
    """One reduction, compiled anew: the fixture changes the program, and no key of a cache."""

    def reduce(x):
        return compressor.reduce(jax.random.key(0), x, (), "data")[0]

    return jax.jit(jax.vmap(reduce, axis_name="data"))(updates)


DETERMINISTIC = [
    "top_k(0.1)",
    "block_max()",
    "block_max(100)",
    "block_top_k(0.02, block=64)",
    "block_top_k(0.05, block=256, inner=cast('bfloat16'))",
    "cast('bfloat16')",
    "float8()",
    "int8(group=128)",
    "int4(group=64)",
    "lloyd_max(2)",
    "sign(64)",
]


@pytest.mark.parametrize("text", DETERMINISTIC)
def test_arrays_merged_on_accelerators_give_the_same_mean_and_residual(text, request):
    compressor = one_phase(jaxcompress.parse(text))
    updates = random_updates(4, TREE)
    expected = by_vmap(compressor, updates)
    request.getfixturevalue("on_accelerators")
    found = by_vmap(compressor, updates)
    assert_close(found.mean, expected.mean)
    assert_close(found.residual, expected.residual)
    np.testing.assert_array_equal(found.bits, expected.bits)


@pytest.mark.usefixtures("on_accelerators")
@pytest.mark.parametrize(
    "text", ["qsgd(4)", "terngrad()", "natural()", "block_top_k(0.1, inner=qsgd(8))"]
)
def test_the_law_holds_for_merged_arrays_rounded_at_random(text):
    compressor = one_phase(jaxcompress.parse(text))
    updates = random_updates(5, {key: x for key, x in TREE.items() if "half" not in key})
    found = by_vmap(compressor, updates)
    kept = jax.tree.map(lambda mean, rest: mean[0] + rest.mean(0), found.mean, found.residual)
    assert_close(kept, jax.tree.map(lambda x: x.mean(0), updates))


@pytest.mark.usefixtures("on_accelerators")
def test_a_program_for_accelerators_does_not_grow_with_the_arrays():
    more = TREE | {"more": jnp.zeros((70, 3)), "seven": jnp.zeros(7), "end": jnp.zeros(1000)}

    def operations(tree):
        updates = random_updates(6, tree, 2)
        program = jax.make_jaxpr(lambda x: by_vmap(one_phase(block_max(64)), x))(updates)
        return str(program).count(" reduce_max[")

    assert 0 < operations(TREE) == operations(more)
