"""What one worker computes: its update without a network, its gradient, and what it keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcompress import compress, dense, error_feedback, parse, power_sgd, top_k
from jaxcompress.planning.local_work import (
    gradient,
    kept_energy,
    on_each,
    traced_update,
    update_ms,
)

ONE = jax.devices()[:1]
GRADS = {"matrix": jnp.asarray(np.random.default_rng(0).standard_normal((40, 50)), jnp.float32)}


def test_an_update_reads_the_messages_of_all_workers():
    def largest(workers):
        chain = optax.chain(compress(error_feedback(top_k(0.1))), optax.sgd(0.1))
        jaxpr = traced_update(chain, GRADS, GRADS, {"data": workers}).jaxpr
        gathered = [
            var.aval.size
            for equation in jaxpr.eqns
            if "all_gather" in equation.primitive.name
            for var in equation.outvars
        ]
        return max(gathered)

    assert largest(4) == 2 * largest(2)


@pytest.mark.parametrize("text", ["dense()", "error_feedback(hierarchical(dense(), top_k(0.1)))"])
def test_the_time_of_an_update_is_measured_without_other_workers(text):
    axes = {"data": 8} if text == "dense()" else {"node": 2, "gpu": 4}
    chain = optax.chain(compress(parse(text), tuple(axes)), optax.adam(1e-3))
    assert update_ms(chain, GRADS, GRADS, axes, jax.devices()[:2], repeats=1) > 0


def test_the_gradient_is_that_of_the_loss_alone():
    def loss_fn(params, extra, batch):
        return jnp.sum(params["matrix"] * batch) * extra, (extra, {})

    found = gradient(loss_fn)(GRADS, jnp.float32(2), jnp.float32(3))
    np.testing.assert_allclose(found["matrix"], 6)


def test_all_devices_run_at_once_each_as_the_only_worker():
    def function(x):
        return jax.lax.psum(2 * x, "data") + jax.lax.axis_index("data")

    found = on_each(function, [jnp.ones(3)], jax.devices()[:3], ("data",))()
    assert len(found.sharding.device_set) == 3
    np.testing.assert_array_equal(found, 2)


def test_a_gradient_that_is_not_finite_is_refused_in_any_kind_of_array():
    broken = {"bias": jnp.ones(3000), "matrix": GRADS["matrix"].at[0, 0].set(jnp.nan)}
    with pytest.raises(ValueError, match="not finite"):
        kept_energy(top_k(0.1), broken, ONE, ("data",))


@pytest.mark.parametrize("axes", [("data",), ("node", "gpu")])
def test_kept_is_the_energy_that_a_selection_sends(axes):
    x = GRADS["matrix"]
    largest = np.sort(np.square(np.asarray(x)).ravel())[::-1][:200]
    expected = largest.sum() / float(jnp.sum(x**2))
    assert kept_energy(top_k(0.1), GRADS, ONE, axes) == pytest.approx(expected, rel=1e-5)
    assert kept_energy(error_feedback(top_k(0.1)), GRADS, ONE, axes) == pytest.approx(
        expected, rel=1e-5
    )


def test_low_rank_keeps_what_it_keeps_after_its_random_start():
    left, right = (
        np.linalg.qr(np.random.default_rng(seed).standard_normal((200, 200)))[0] for seed in (0, 1)
    )
    singular = 0.9 ** np.arange(200)
    matrix = {"matrix": jnp.asarray((left * singular) @ right, jnp.float32)}
    best = np.sum(singular[:4] ** 2) / np.sum(singular**2)
    for compressor in (power_sgd(4), error_feedback(power_sgd(4))):
        assert 0.85 * best < kept_energy(compressor, matrix, ONE, ("data",)) < best


def test_the_worst_kind_of_array_counts():
    vector = jnp.where(jnp.arange(2000) < 200, 1.0, 0.0)
    both = GRADS | {"vector": vector, "short": jnp.ones(3), "zero": jnp.zeros((4, 4, 4))}
    assert kept_energy(top_k(0.1), both, ONE, ("data",)) == pytest.approx(
        kept_energy(top_k(0.1), GRADS, ONE, ("data",)), rel=1e-5
    )
    assert kept_energy(dense(), both, ONE, ("data",)) == 1
    # A vector travels dense under low rank, and keeps everything.
    assert kept_energy(power_sgd(1), {"vector": vector}, ONE, ("data",)) == 1
