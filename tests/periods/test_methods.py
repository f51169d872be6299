"""The published methods learn on four workers, and send what their papers say."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcompress import (
    compress,
    data_mesh,
    diloco,
    init_state,
    local_sgd,
    local_updates,
    make_local_step,
    mu_loco,
    parse,
    replicate,
    rows_of_workers,
    shard_batch,
    sparse_loco,
)
from jaxcompress.periods.own_steps import local_state

RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 64), np.float32)
PARAMS = {
    "up": RNG.standard_normal((64, 256), np.float32) / 8,
    "down": RNG.standard_normal((256, 64), np.float32) / 16,
}
SIZE = sum(x.size for x in PARAMS.values())
STEPS = 100
METHODS = {
    "local_sgd": (local_sgd(3.0, period=5), 32.0),
    "diloco": (diloco(optax.adamw(3e-3), period=5), 32.0),
    "sparse_loco": (sparse_loco(optax.adamw(3e-3), period=5), 0.25),
    "mu_loco": (mu_loco(3e-3, period=5), 2.25),
}


def loss_fn(params, batch):
    return jnp.mean(jnp.square(jax.nn.gelu(batch @ params["up"]) @ params["down"] - batch))


# What docs/periods.md says of each: inner, outer and compressor.
NESTEROV = {"momentum": 0.9, "nesterov": True}
WRITTEN_OUT = {
    "local_sgd": (optax.sgd(3.0), optax.sgd(1.0), "dense()"),
    "diloco": (optax.adamw(3e-3), optax.sgd(0.7, **NESTEROV), "dense()"),
    "sparse_loco": (
        optax.adamw(3e-3),
        optax.sgd(1.0),
        "error_feedback(block_top_k(0.015625, block=4096, inner=int2()), decay=0.95)",
    ),
    "mu_loco": (
        optax.contrib.muon(3e-3),
        optax.sgd(0.8, **NESTEROV),
        "error_feedback(int2(group=128), decay=0.9)",
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_it_is_the_line_of_its_page(name):
    inner, outer, text = WRITTEN_OUT[name]
    written_out = local_updates(inner, outer, compress(parse(text)), 5)
    mesh, found = data_mesh(4), []
    for optimizer in (METHODS[name][0], written_out):
        params, extra = replicate(PARAMS, mesh), rows_of_workers({}, mesh)
        state, step = init_state(optimizer, params, mesh), make_local_step(loss_fn, optimizer, mesh)
        for _ in range(15):
            params, state, extra, _ = step(params, state, extra, shard_batch(X, mesh))
        found.append(jax.device_get(params))
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize("name", METHODS)
def test_it_learns_and_sends_few_bits_once_in_a_period(name):
    optimizer, bits = METHODS[name]
    mesh = data_mesh(4)
    params, extra = replicate(PARAMS, mesh), rows_of_workers({}, mesh)
    state, step = init_state(optimizer, params, mesh), make_local_step(loss_fn, optimizer, mesh)
    batch = shard_batch(X, mesh)
    sent = []
    for _ in range(STEPS):
        params, state, extra, _ = step(params, state, extra, batch)
        sent.append(float(local_state(state).sending.bits) / SIZE)
    assert float(loss_fn(params, X)) < 0.7 * float(loss_fn(PARAMS, X))
    assert [one > 0 for one in sent] == [count % 5 == 4 for count in range(STEPS)]
    assert 0.8 * bits < max(sent) <= bits
