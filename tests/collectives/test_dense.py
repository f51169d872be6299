"""The plain average costs what a plain `pmean` costs, and the fused one is the same average in
fewer collectives.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
    WORKERS,
    assert_close,
    assert_same_bits,
    first_state,
    mean_over_workers,
    random_updates,
    run,
)
from jax import lax
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress import dense
from jaxcompress.collectives.dense import SMALL_BITS, fused_mean

LARGE = SMALL_BITS // 32 + 1


def params():
    """Small and large arrays of two dtypes."""
    return {
        "kernel": jnp.zeros((20, 30)),
        "bias": jnp.zeros(30),
        "scalar": jnp.zeros(()),
        "large": jnp.zeros((LARGE,)),
        "half": jnp.zeros((7, 3), jnp.bfloat16),
        "more": {"half": jnp.zeros(9, jnp.bfloat16), "empty": jnp.zeros((0, 2))},
    }


def on_workers(average):
    """A jitted step that averages rows of updates over the workers."""

    def step(updates):
        return average(jax.tree.map(lambda x: x[0], updates))

    mesh = jaxcompress.data_mesh(WORKERS)
    return jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P("data"), out_specs=P()))


def train_step(average):
    """A jitted step of SGD whose link `average` stands where the network is, and its arguments."""
    optimizer = optax.chain(average, optax.sgd(0.1))
    mesh = jaxcompress.data_mesh(WORKERS)
    like = {"kernel": jnp.zeros((20, 30)), "bias": jnp.zeros(30), "scale": jnp.zeros(())}

    def loss(params, extra, batch):
        error = batch @ params["kernel"] * params["scale"] + params["bias"]
        return jnp.mean(error**2), (extra, {})

    state = jaxcompress.init_state(optimizer, like, mesh)
    batch = jaxcompress.shard_batch(np.zeros((8, 20), np.float32), mesh)
    return jaxcompress.make_train_step(loss, optimizer, mesh), (like, state, {}, batch)


def plain_pmean() -> optax.GradientTransformation:
    """``lax.pmean`` as a link of a chain."""
    return optax.GradientTransformation(
        lambda params: optax.EmptyState(),
        lambda updates, state, params=None: (lax.pmean(updates, "data"), state),
    )


def test_compress_dense_costs_what_a_plain_pmean_costs():
    compressed, args = train_step(jaxcompress.compress(dense()))
    plain, plain_args = train_step(plain_pmean())
    asked, compiled = jaxcompress.traffic(compressed, *args)
    plain_asked, plain_compiled = jaxcompress.traffic(plain, *plain_args)
    assert asked.payload_bytes == plain_asked.payload_bytes
    assert compiled == plain_compiled
    # The gradients and the loss: both in one all-reduce.
    assert [each.operation for each in compiled.collectives] == ["all-reduce"]
    assert compiled.payload_bytes == 4 * (20 * 30 + 30 + 1 + 1)


def test_the_fused_mean_moves_the_same_bytes_in_one_compiled_all_reduce():
    updates = random_updates(0, params())
    fused, plain = (on_workers(lambda x, f=f: f(x, "data")) for f in (fused_mean, lax.pmean))
    moved = jaxcompress.traffic(fused, updates)[1]
    assert [each.operation for each in moved.collectives] == ["all-reduce"]
    assert moved.payload_bytes == jaxcompress.traffic(plain, updates)[1].payload_bytes


def test_small_arrays_of_a_dtype_share_a_buffer_and_large_ones_are_not_copied():
    asked = jaxcompress.traffic(
        on_workers(lambda x: fused_mean(x, "data")), random_updates(0, params())
    )[0]
    # In entries: the large array itself, then the small ones of each dtype.
    assert sorted((each.dtypes, each.payload_bytes) for each in asked.collectives) == [
        (("bfloat16",), 2 * (21 + 9)),
        (("float32",), 4 * (600 + 30 + 1)),
        (("float32",), 4 * LARGE),
    ]


def test_the_fused_mean_is_pmean():
    updates = random_updates(1, params())
    fused = on_workers(lambda x: fused_mean(x, "data"))(updates)
    assert_close(fused, mean_over_workers(updates))
    assert_same_bits(fused, on_workers(lambda x: lax.pmean(x, "data"))(updates))


@pytest.mark.parametrize("tree", [{}, {"masked": optax.MaskedNode(), "none": None}])
def test_the_fused_mean_of_nothing_is_nothing(tree):
    make = jax.make_jaxpr(
        lambda: fused_mean(tree, "data"), axis_env=[("data", WORKERS)], return_shape=True
    )
    jaxpr, mean = make()
    assert mean == tree
    assert jaxcompress.traffic_of_jaxpr(jaxpr, {"data": WORKERS}).payload_bytes == 0


def test_what_is_sent_is_the_update_itself():
    updates = random_updates(2, params())
    outcome = run(dense(), updates, first_state(dense(), params()))
    assert_same_bits(outcome.sent, updates)
    assert outcome.bits.tolist() == [32 * (631 + LARGE) + 16 * 30] * WORKERS


def test_float16_beside_other_dtypes_leaves_their_means_alone():
    like = {
        "half": jnp.zeros(9, jnp.float16),
        "full": jnp.zeros((20, 30)),
        "brain": jnp.zeros(7, jnp.bfloat16),
        "large": jnp.zeros(LARGE),
    }
    updates = random_updates(3, like)
    found = on_workers(lambda x: fused_mean(x, "data"))(updates)
    assert_close(found, mean_over_workers(updates))
    assert jax.tree.map(lambda x: x.dtype, found) == jax.tree.map(lambda x: x.dtype, like)
