"""Momentum before the average: the scheme of the paper, and its limit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import WORKERS, assert_close, first_state, random_updates, run, slow_unless

from jaxcompress import (
    compress,
    data_mesh,
    dense,
    error_feedback,
    init_state,
    make_train_step,
    monitor,
    onebit_adam,
    parse,
    partition,
    power_sgd,
    replicate,
    shard_batch,
    sign,
    switch,
    top_k,
    warmup,
)
from jaxcompress.contrib import sign_majority, zero_one_adam
from jaxcompress.distributed.momentum_check import check_one_momentum
from jaxcompress.feedback.momentum_correction import momentum_correction

LIKE = {"x": jnp.zeros((20,))}
RNG = np.random.default_rng(0)
PARAMS = {"kernel": RNG.standard_normal((12, 8), np.float32), "bias": np.zeros(8, np.float32)}
BATCHES = RNG.standard_normal((50, 2 * WORKERS, 20), np.float32)


def numpy_dgc(x, u, v, kept, momentum, nesterov, masking):
    """One step of algorithm 4 of the paper, for all workers' rows."""
    u = momentum * u + x
    v = v + (x + momentum * u if nesterov else u)
    indices = np.argsort(-np.abs(v), axis=-1, kind="stable")[..., :kept]
    mask = np.zeros(v.shape, bool)
    np.put_along_axis(mask, indices, True, -1)
    sent = np.where(mask, v, 0)
    return sent, np.where(mask, 0, u) if masking else u, np.where(mask, 0, v)


@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("nesterov", [True, False])
def test_it_is_the_scheme_of_the_paper(nesterov, masking):
    compressor = momentum_correction(top_k(0.25), 0.9, nesterov, masking)
    state, u, v = first_state(compressor, LIKE), np.zeros((WORKERS, 20)), np.zeros((WORKERS, 20))
    for step in range(10):
        updates = random_updates(step, LIKE)
        sent, u, v = numpy_dgc(
            np.asarray(updates["x"], np.float64), u, v, 5, 0.9, nesterov, masking
        )
        outcome = run(compressor, updates, state)
        state = outcome.state
        np.testing.assert_allclose(outcome.mean["x"][0], sent.mean(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.velocity.value["x"], u, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.error.value.arrays["x"], v, rtol=1e-4, atol=1e-5)


def loss_fn(params, extra, batch):
    x, y = batch[:, :12], batch[:, 12:]
    return jnp.mean(jnp.square(jnp.tanh(x @ params["kernel"]) + params["bias"] - y)), (extra, {})


def train(optimizer):
    """Parameters after fifty steps, each on another batch."""
    mesh = data_mesh(WORKERS)
    params = replicate(PARAMS, mesh)
    state, step = init_state(optimizer, params, mesh), make_train_step(loss_fn, optimizer, mesh)
    for batch in BATCHES:
        params, state, *_ = step(params, state, {}, shard_batch(batch, mesh))
    return params


@pytest.mark.parametrize(
    ("rate", "nesterov", "masking"),
    slow_unless(
        [(0, True, False), (0, False, True), (2.0, False, False), (2.0, True, True)],
        (0, 2.0),
        (True, False),
        (True, False),
    ),
)
def test_at_density_one_it_is_sgd_with_momentum(nesterov, rate, masking):
    """With rate 0 all arrays pass through top_k; with 2 all travel dense, with the
    same momentum.
    """
    corrected = momentum_correction(top_k(1.0), 0.9, nesterov, masking)
    found = train(optax.chain(compress(corrected, min_compression_rate=rate), optax.sgd(0.05)))
    assert_close(found, train(optax.chain(compress(dense()), optax.sgd(0.05, 0.9, nesterov))))


def test_arrays_that_travel_dense_have_the_momentum_of_the_others():
    """A bias too small to compress, or told not to be, is trained as by SGD with momentum; the
    kernel stands still.
    """

    def bias_only(params, extra, batch):
        return jnp.mean(jnp.square(params["bias"] - batch[:, :8])), (extra, {})

    def train_bias(optimizer):
        mesh = data_mesh(WORKERS)
        params = replicate(PARAMS, mesh)
        state, step = (
            init_state(optimizer, params, mesh),
            make_train_step(bias_only, optimizer, mesh),
        )
        for batch in BATCHES[:10]:
            params, state, *_ = step(params, state, {}, shard_batch(batch, mesh))
        return params["bias"]

    whole = partition(
        {"bias": dense(), "kernel": top_k(0.1)}, lambda tree: {name: name for name in tree}
    )
    for corrected, rate in (
        (momentum_correction(top_k(0.1)), 10),
        (monitor(momentum_correction(top_k(0.1))), 10),
        (
            partition(
                {"all": momentum_correction(top_k(0.1))}, lambda t: jax.tree.map(lambda _: "all", t)
            ),
            10,
        ),
        (momentum_correction(whole), 0),
        (momentum_correction(switch(warmup(10), dense(), top_k(0.1))), 0),
    ):
        link = compress(corrected, min_compression_rate=rate)
        found = train_bias(optax.chain(link, optax.sgd(0.05)))
        assert_close(found, train_bias(optax.chain(compress(dense()), optax.sgd(0.05, 0.9))))


def test_what_is_sent_late_has_the_momentum_of_its_delay():
    """A constant gradient that is never the largest, until it is: after n steps v is the sum of all
    velocities.
    """
    compressor = momentum_correction(top_k(0.5), 0.5)
    updates = {"x": jnp.tile(jnp.array([4.0, 1.0]), (WORKERS, 1))}
    state, sent = first_state(compressor, {"x": jnp.zeros(2)}), []
    for _ in range(3):
        outcome = run(compressor, updates, state)
        state = outcome.state
        sent.append(np.asarray(outcome.mean["x"][0]))
    # u: 4 | 1; the first is sent and masked, 4 again; u: 1, 1.5, 1.75 -> v: 1, 2.5, 4.25 > 4.
    np.testing.assert_array_equal(sent, [[4, 0], [4, 0], [0, 4.25]])


def test_one_step_that_is_not_finite_does_not_stay():
    compressor, good = momentum_correction(top_k(0.25)), random_updates(0, LIKE)
    first = run(compressor, good, first_state(compressor, LIKE))
    after_bad = run(compressor, {"x": good["x"].at[1, 2].set(np.inf)}, first.state)
    after = run(compressor, good, after_bad.state)
    for part in (after_bad.state.velocity, after_bad.state.error, after.mean):
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(part))


def test_an_entry_that_is_not_finite_takes_no_momentum_from_others_that_travel_whole():
    compressor, good = (
        momentum_correction(switch(warmup(9), dense(), top_k(0.25))),
        random_updates(0, LIKE),
    )
    first = run(compressor, good, first_state(compressor, LIKE))
    after_bad = run(compressor, {"x": good["x"].at[1, 2].set(np.nan)}, first.state)
    velocity = np.array(after_bad.state.velocity.value["x"])
    expected = 1.9 * np.array(good["x"])
    velocity[1, 2] = expected[1, 2] = 0
    np.testing.assert_allclose(velocity, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "second",
    [
        *(
            optax.sgd(0.1, momentum=0.9),
            optax.adam(0.1),
            optax.lion(0.1),
            optax.chain(optax.trace(0.9)),
        ),
        *(
            optax.adan(0.1),
            optax.contrib.muon(0.1),
            optax.contrib.ademamix(0.1),
            optax.contrib.prodigy(0.1),
        ),
        optax.partition(
            {"all": optax.sgd(0.1, momentum=0.9)}, lambda tree: jax.tree.map(lambda _: "all", tree)
        ),
    ],
)
def test_momentum_after_it_is_refused(second):
    optimizer = optax.chain(compress(momentum_correction(top_k(0.1))), second)
    with pytest.raises(
        ValueError, match=r"momentum before the average, and .* is another one after it"
    ):
        init_state(optimizer, PARAMS, data_mesh(WORKERS))


def test_momentum_after_a_one_bit_optimizer_is_refused():
    one_bit = onebit_adam(0.1, compress(error_feedback(sign())))
    check_one_momentum(optax.chain(one_bit, optax.clip_by_global_norm(1.0)).init(PARAMS))
    for optimizer in (one_bit, zero_one_adam(0.1, compress(error_feedback(sign())))):
        with pytest.raises(ValueError, match=r"Moments .* and TraceState.trace is another"):
            check_one_momentum(optax.chain(optimizer, optax.sgd(1.0, momentum=0.9)).init(PARAMS))


def test_groups_of_a_partition_are_optimizers_by_themselves():
    groups = {
        "kernel": optax.chain(compress(momentum_correction(top_k(0.1))), optax.sgd(0.1)),
        "bias": optax.chain(compress(dense()), optax.adam(0.1)),
    }
    check_one_momentum(optax.partition(groups, {"kernel": "kernel", "bias": "bias"}).init(PARAMS))
    groups["kernel"] = optax.chain(groups["kernel"], optax.trace(0.9))
    with pytest.raises(ValueError, match="momentum before the average"):
        check_one_momentum(
            optax.partition(groups, {"kernel": "kernel", "bias": "bias"}).init(PARAMS)
        )


def test_momentum_around_a_partition_is_a_second_one():
    groups = {"kernel": compress(momentum_correction(top_k(0.1))), "bias": compress(dense())}
    parted = optax.partition(groups, {"kernel": "kernel", "bias": "bias"})
    check_one_momentum(optax.chain(parted, optax.sgd(0.1)).init(PARAMS))
    with pytest.raises(ValueError, match="momentum before the average"):
        check_one_momentum(optax.chain(parted, optax.sgd(0.1, momentum=0.9)).init(PARAMS))


def test_momentum_after_other_memories_is_welcome():
    check_one_momentum(
        optax.chain(compress(error_feedback(top_k(0.1))), optax.adam(0.1)).init(PARAMS)
    )
    check_one_momentum(
        optax.chain(compress(momentum_correction(top_k(0.1))), optax.sgd(0.1)).init(PARAMS)
    )


def test_what_cannot_be_inside_or_outside_is_refused():
    corrected = momentum_correction(top_k(0.1))
    with pytest.raises(ValueError, match=r"momentum_correction takes .* without a memory"):
        momentum_correction(error_feedback(top_k(0.1)))
    with pytest.raises(ValueError, match=r"error_feedback takes .* without a memory"):
        error_feedback(corrected)
    with pytest.raises(ValueError, match="momentum_correction is unstable around sign_majority"):
        momentum_correction(sign_majority())
    with pytest.raises(ValueError, match=r"outside: momentum_correction\(switch"):
        switch(warmup(2), dense(), corrected)
    with pytest.raises(ValueError, match=r"outside, as in error_feedback\(power_sgd"):
        power_sgd(2, inner=corrected)
    with pytest.raises(ValueError, match="momentum is how much of the velocity is kept"):
        momentum_correction(top_k(0.1), 1.0)


@pytest.mark.parametrize(
    ("inner", "sparsifies"),
    [
        ("qsgd(8)", False),
        ("sign()", False),
        ("power_sgd(2)", False),
        ("top_k(0.1, inner=qsgd(8))", True),
        ("switch(warmup(1), top_k(0.1), qsgd(8))", False),
        ("partition({'matrix': power_sgd(2), 'rest': top_k(0.1)}, by_shape())", False),
    ],
)
def test_masking_is_for_what_sends_some_entries(inner, sparsifies):
    made = parse(inner)
    if sparsifies:
        assert momentum_correction(made).has_memory
        return
    with pytest.raises(ValueError, match=r"with masking .* Write momentum_.*, masking=False\)"):
        momentum_correction(made)
    assert momentum_correction(made, masking=False).has_memory


def test_it_is_written_as_text():
    text = (
        "momentum_correction(switch(warmup(9), top_k(0.25), top_k(0.01)), momentum=0.8,"
        " nesterov=True)"
    )
    assert repr(parse(text)) == text
