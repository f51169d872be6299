"""A batch in parts is the whole batch, sent once."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import FLOAT32, assert_close, slow

import jaxcompress
from jaxcompress import (
    compress,
    data_mesh,
    error_feedback,
    init_state,
    make_train_step,
    replicate,
    shard_batch,
    top_k,
)

WORKERS, ROWS = 2, 24
RNG = np.random.default_rng(0)
BATCH = RNG.standard_normal((ROWS, 40), np.float32), RNG.standard_normal((ROWS, 30), np.float32)
W = RNG.standard_normal((40, 30), np.float32)


def loss_fn(params, extra, batch):
    x, y = batch
    seen = {"batches": extra["batches"] + 1}
    return jnp.mean(jnp.square(x @ params["w"] - y)), (
        seen,
        {"rows": jnp.float32(len(x)), "top": jnp.max(x)},
    )


def one_step(micro_batches, dtype=jnp.float32, batch=BATCH):
    optimizer, mesh = (
        optax.chain(compress(error_feedback(top_k(0.1))), optax.sgd(0.1)),
        data_mesh(WORKERS),
    )
    params = replicate({"w": jnp.asarray(W, dtype)}, mesh)
    step = make_train_step(loss_fn, optimizer, mesh, micro_batches=micro_batches)
    arguments = (
        params,
        init_state(optimizer, params, mesh),
        replicate({"batches": np.float32(0)}, mesh),
    )
    traced = step.trace(*arguments, shard_batch(batch, mesh))
    return traced.jaxpr, step(*arguments, shard_batch(batch, mesh))


@pytest.mark.parametrize("micro_batches", [3, 12, *slow(2)])
def test_parts_give_the_gradient_of_the_whole(micro_batches):
    _, (params, state, extra, metrics) = one_step(micro_batches)
    _, (whole, whole_state, _, whole_metrics) = one_step(1)
    np.testing.assert_allclose(params["w"], whole["w"], **FLOAT32)
    assert_close(state[0].inner, whole_state[0].inner)
    np.testing.assert_allclose(metrics["loss"], whole_metrics["loss"], **FLOAT32)
    assert extra["batches"] == micro_batches and metrics["rows"] == ROWS / WORKERS / micro_batches


def test_bytes_of_a_sample_fall_with_the_number_of_parts():
    """Four times the rows in four parts: the same message, so a quarter of the bytes a row."""
    four = tuple(np.concatenate([x] * 4) for x in BATCH)
    one, many = (
        jaxcompress.traffic_of_jaxpr(one_step(parts, batch=batch)[0])
        for parts, batch in ((1, BATCH), (4, four))
    )
    assert many.payload_bytes == one.payload_bytes > 0
    assert many.wire_bytes / (4 * ROWS) == one.wire_bytes / ROWS / 4


def test_gradients_of_bfloat16_parameters_are_added_up_in_float32():
    def loss(params, extra, batch):
        return jnp.sum(params["w"] * batch[0].mean().astype(jnp.bfloat16)), (extra, {})

    # In bfloat16 the sum of 1,024 ones would stop at 256.
    x = np.ones((1024, 1), np.float32)
    mesh, optimizer = data_mesh(1), optax.chain(compress(jaxcompress.dense()), optax.sgd(1.0))
    params = replicate({"w": jnp.zeros((3,), jnp.bfloat16)}, mesh)
    step = make_train_step(loss, optimizer, mesh, micro_batches=1024)
    after, *_ = step(params, init_state(optimizer, params, mesh), {}, shard_batch((x, x), mesh))
    np.testing.assert_array_equal(np.asarray(after["w"], np.float32), -np.ones(3))


def test_counters_and_keys_pass_from_part_to_part():
    def loss(params, extra, batch):
        key, _ = jax.random.split(extra["key"])
        return jnp.mean(params["w"] * batch[0].mean()), (
            {"key": key, "count": extra["count"] + 1},
            {},
        )

    mesh, optimizer = data_mesh(WORKERS), optax.chain(compress(jaxcompress.dense()), optax.sgd(1.0))
    params = replicate({"w": jnp.zeros(3)}, mesh)
    step = make_train_step(loss, optimizer, mesh, micro_batches=4)
    extra = replicate({"key": jax.random.key(0), "count": jnp.int32(0)}, mesh)
    _, _, extra, _ = step(
        params, init_state(optimizer, params, mesh), extra, shard_batch(BATCH, mesh)
    )
    assert extra["count"] == 4
    key = jax.random.key(0)
    for _ in range(4):
        key, _ = jax.random.split(key)
    assert np.array_equal(jax.random.key_data(extra["key"]), jax.random.key_data(key))


def test_rows_that_do_not_divide_are_refused():
    with pytest.raises(
        ValueError, match=r"micro_batches cuts each worker's rows .* 12 rows do not divide by 5"
    ):
        one_step(5)
    with pytest.raises(ValueError, match=r"micro_batches is .* at least 1; got 0"):
        one_step(0)


def test_parts_are_gathered_once():
    jaxpr, _ = one_step(4)
    assert str(jaxpr).count("all_gather") == str(one_step(1)[0]).count("all_gather")


def test_a_number_of_python_in_extra_is_an_array():
    def loss_fn(params, extra, batch):
        return jnp.mean(params["w"] * batch), ({"factor": 0.5}, {})

    optimizer, mesh = optax.chain(compress(top_k(0.5)), optax.sgd(0.1)), data_mesh(WORKERS)
    params = {"w": jnp.ones(3)}
    step = make_train_step(loss_fn, optimizer, mesh, micro_batches=2)
    batch = shard_batch(np.ones((8, 3), np.float32), mesh)
    state = init_state(optimizer, params, mesh)
    extra = step(replicate(params, mesh), state, {"factor": 0.5}, batch)[2]
    assert extra["factor"] == 0.5
