"""Deep Gradient Compression in one call, and the limit at which it is SGD with momentum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import WORKERS, assert_close, assert_same_bits

from jaxcompress import (
    clip_by_local_norm,
    compress,
    data_mesh,
    dense,
    init_state,
    make_train_step,
    momentum_correction,
    parse,
    replicate,
    shard_batch,
)
from jaxcompress.optimizers.dgc import add_decayed_weights_with_momentum, dgc, dgc_warmup

RNG = np.random.default_rng(0)
PARAMS = {"kernel": RNG.standard_normal((30, 20), np.float32), "bias": np.ones(20, np.float32)}
TRUTH = RNG.standard_normal((30, 20), np.float32)
X = RNG.standard_normal((400, 16 * WORKERS, 30), np.float32)


def loss_fn(params, extra, batch):
    return jnp.mean(jnp.square(batch @ params["kernel"] + params["bias"] - batch @ TRUTH)), (
        extra,
        {},
    )


def train(optimizer, steps):
    """Parameters and the last loss."""
    mesh = data_mesh(WORKERS)
    params = replicate(PARAMS, mesh)
    state, step = init_state(optimizer, params, mesh), make_train_step(loss_fn, optimizer, mesh)
    for batch in X[:steps]:
        params, state, _, metrics = step(params, state, {}, shard_batch(batch, mesh))
    return params, float(metrics["loss"])


@pytest.mark.parametrize("nesterov", [True, False])
def test_at_density_one_it_is_sgd_with_momentum_and_weight_decay(nesterov):
    found, _ = train(
        optax.chain(dgc(1.0, nesterov=nesterov, weight_decay=0.01), optax.sgd(0.05)), 50
    )
    plain = optax.chain(
        compress(dense()), optax.add_decayed_weights(0.01), optax.sgd(0.05, 0.9, nesterov)
    )
    assert_close(found, train(plain, 50)[0])


def test_it_is_the_chain_of_its_docstring():
    def kernels(params):
        return jax.tree.map(lambda x: x.ndim > 1, params)

    ours = dgc(
        0.05,
        0.8,
        nesterov=True,
        masking=False,
        max_norm=0.5,
        weight_decay=0.1,
        decay_mask=kernels,
        warmup_steps=2,
        min_compression_rate=1.0,
        seed=3,
    )
    corrected = momentum_correction(dgc_warmup(0.05, 2), 0.8, nesterov=True, masking=False)
    theirs = optax.chain(
        clip_by_local_norm(0.5),
        compress(corrected, min_compression_rate=1.0, seed=3),
        add_decayed_weights_with_momentum(0.1, 0.8, nesterov=True, mask=kernels),
    )
    assert_same_bits(ours.init(PARAMS), theirs.init(PARAMS))
    assert_same_bits(*(train(optax.chain(one, optax.sgd(0.05)), 6)[0] for one in (ours, theirs)))


def test_it_trains_at_one_percent_with_its_ladder():
    _, loss = train(optax.chain(dgc(0.01, warmup_steps=20, max_norm=10.0), optax.sgd(0.1)), 400)
    _, start = train(optax.chain(dgc(0.01), optax.sgd(0.0)), 1)
    assert loss < start / 100


def test_decay_of_chosen_weights_only():
    def only_kernels(params):
        return jax.tree.map(lambda p: p.ndim > 1, params)

    link = add_decayed_weights_with_momentum(0.1, 0.5, mask=only_kernels)
    state, zeros = link.init(PARAMS), jax.tree.map(np.zeros_like, PARAMS)
    for factor in (1, 1.5, 1.75):
        updates, state = link.update(zeros, state, PARAMS)
        assert_close(updates, {"kernel": 0.1 * factor * PARAMS["kernel"], "bias": zeros["bias"]})


def test_a_mask_may_be_the_beginning_of_a_tree():
    link = add_decayed_weights_with_momentum(0.1, 0.5, mask={"conv": True, "norm": False})
    params = {name: {"kernel": np.ones(3), "bias": np.ones(2)} for name in ("conv", "norm")}
    zeros = jax.tree.map(np.zeros_like, params)
    updates, _ = link.update(zeros, link.init(params), params)
    assert_close(updates["conv"], {"kernel": np.full(3, 0.1), "bias": np.full(2, 0.1)})
    assert_close(updates["norm"], zeros["norm"])


def test_the_ladder_is_that_of_the_paper():
    stages = "top_k(0.25), top_k(0.0625), top_k(0.015625), top_k(0.00390625), top_k(0.001)"
    assert repr(dgc_warmup(0.001, 10)) == "dgc_warmup(0.001, warmup_steps=10)"
    assert repr(dgc_warmup.__wrapped__(0.001, 10)) == f"switch(warmup(10), {stages})"
    assert repr(dgc_warmup.__wrapped__(0.1, 10)) == "switch(warmup(10), top_k(0.25), top_k(0.1))"
    assert repr(dgc_warmup.__wrapped__(0.1)) == repr(dgc_warmup.__wrapped__(0.1, 0)) == "top_k(0.1)"
    assert repr(dgc_warmup.__wrapped__(1.0, 10)) == "top_k(1.0)"


def test_the_ladder_may_be_in_epochs():
    stages = dgc_warmup.__wrapped__(0.1, warmup_epochs=0.5, steps_per_epoch=21)
    assert repr(stages) == "switch(warmup(10), top_k(0.25), top_k(0.1))"
    text = "dgc_warmup(0.1, warmup_epochs=0.5, steps_per_epoch=21)"
    assert repr(parse(text)) == text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"density": 0.0}, "density is the fraction kept"),
        ({"momentum": 1.0}, "momentum is how much of the velocity is kept"),
        (
            {"warmup_steps": -1},
            "warmup_steps is the number of steps at each stage, an integer of at least 0; got -1",
        ),
        (
            {"warmup_epochs": -0.5, "steps_per_epoch": 9},
            "warmup_epochs is the number of epochs at each stage",
        ),
        (
            {"warmup_epochs": 1},
            "warmup_epochs needs steps_per_epoch, and the other way round, .* got 1 and None",
        ),
        (
            {"steps_per_epoch": 9},
            "warmup_epochs needs steps_per_epoch, and the other way round, .* got 0 and 9",
        ),
        (
            {"warmup_epochs": 1, "steps_per_epoch": 0},
            "steps_per_epoch is the number of optimizer steps in an epoch",
        ),
        (
            {"warmup_steps": 5, "warmup_epochs": 1, "steps_per_epoch": 9},
            "in steps or in epochs; got warmup_steps=5",
        ),
        ({"max_norm": 0}, "max_norm is the largest norm of the average, above 0 and finite; got 0"),
        (
            {"weight_decay": -0.1},
            "weight_decay is a factor of the parameters, at least 0 and finite; got -0.1",
        ),
    ],
)
def test_bad_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        dgc(**options)


def test_decay_without_parameters_is_refused():
    link = add_decayed_weights_with_momentum(0.1, 0.9)
    with pytest.raises(ValueError, match="weight decay pulls at the parameters"):
        link.update(PARAMS, link.init(PARAMS))
