"""The published methods learn on four workers, and send what their papers say."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gossip_helpers import Gossip, distance

from jaxcompress import (
    compress,
    data_mesh,
    diloco,
    gossip,
    init_state,
    local_sgd,
    local_updates,
    make_local_step,
    mean_over_workers,
    mu_loco,
    no_loco,
    pair_mean,
    parse,
    power_gossip,
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
    "mu_loco": (mu_loco(3e-3, period=5), 1.73),
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


# Bits per parameter and exchange. Long messages are filled to whole lanes of 128 words.
WITHOUT_A_MEAN = {
    "pair_mean": (gossip(optax.sgd(3.0), pair_mean(), period=5), 32.2),
    "power_gossip": (gossip(optax.sgd(3.0), power_gossip(4, rank=4), period=5), 1.26),
    "no_loco": (no_loco(optax.adamw(3e-3), period=5), 32.2),
}


@pytest.mark.parametrize("name", WITHOUT_A_MEAN)
def test_the_mean_of_workers_without_a_common_average_learns(name):
    optimizer, bits = WITHOUT_A_MEAN[name]
    mesh = data_mesh(4)
    params, extra = replicate(PARAMS, mesh), rows_of_workers({}, mesh)
    state, step = init_state(optimizer, params, mesh), make_local_step(loss_fn, optimizer, mesh)
    batch, sent = shard_batch(X, mesh), []
    for _ in range(STEPS):
        params, state, extra, _ = step(params, state, extra, batch)
        sent.append(float(state.bits) / SIZE)
    mean = mean_over_workers(state.params)
    # Without exchanges 0.38 of the loss is left, and 0.66 of it for the workers' own parameters.
    assert float(loss_fn(mean, X)) < 0.3 * float(loss_fn(PARAMS, X))
    own = [jax.tree.map(lambda x, w=w: x[w], state.params.value) for w in range(4)]
    assert max(float(loss_fn(one, X)) for one in own) < 0.5 * float(loss_fn(PARAMS, X))
    assert [one > 0 for one in sent] == [count % 5 == 4 for count in range(STEPS)]
    assert 0.8 * bits < max(sent) <= bits


def drawn_to_its_row(params, batch):
    return 0.5 * jnp.sum(jnp.square(params["w"] - batch[0]))


@pytest.mark.parametrize("rate", [0.35, 0.7])
def test_no_loco_takes_the_steps_of_its_paper_in_numpy(rate):
    run, goals = (
        noloco_run(4, rate),
        np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32),
    )
    run.batch = shard_batch(goals, run.mesh)
    own = run.own["w"].astype(float)
    slow, momentum = own, np.zeros_like(own)
    for step, found in enumerate(run.run(12), 1):
        own = own - 0.1 * (own - goals)
        if step % 3 == 0:
            partners = np.arange(4) ^ (1 if step // 3 % 2 else 2)
            drift = own - slow
            momentum = (
                0.5 * momentum
                + rate * (drift + drift[partners]) / 2
                + rate * ((slow + slow[partners]) / 2 - slow)
            )
            own = slow = slow + momentum
        np.testing.assert_allclose(found["w"], own, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("workers", [4, 5, 7, 8])
def test_without_gradients_no_loco_brings_workers_together(workers):
    run = noloco_run(workers)
    far = distance(run.own)
    for _ in range(120):
        run.batch = shard_batch(run.own["w"], run.mesh)
        run.run(1)
    assert distance(run.own) < 0.3 * far


def noloco_run(workers, rate=0.7):
    optimizer = no_loco(optax.sgd(0.1), period=3, outer_learning_rate=rate)
    run = Gossip(
        pair_mean(), workers, shapes={"w": (3,)}, optimizer=optimizer, loss_fn=drawn_to_its_row
    )
    # They start as far apart in their slow parameters.
    run.replace(outer=(run.own, *run.state.outer.value[1:]))
    return run
