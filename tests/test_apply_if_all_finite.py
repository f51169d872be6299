"""A step that is not finite touches nothing, on no worker; a loss scale finds its place."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import WORKERS, assert_close, assert_same_bits, slow, slow_unless
from optimizer_helpers import temporary_copies

import jaxcompress
from jaxcompress import (
    block_max,
    compress,
    data_mesh,
    error_feedback,
    init_state,
    parse,
    replicate,
    shard_batch,
    skipped_steps,
)
from jaxcompress.apply_if_all_finite import apply_if_all_finite
from jaxcompress.distributed.placement import as_numpy

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2 * WORKERS, 12), np.float32)
Y = RNG.standard_normal((2 * WORKERS, 8), np.float32)
PARAMS = {"kernel": RNG.standard_normal((12, 8), np.float32), "bias": np.zeros(8, np.float32)}
MEMORIES = [
    "error_feedback(power_sgd(2))",
    "error_feedback(qsgd(4), dtype='int8')",
    "momentum_correction(top_k(0.1))",
    "control_variate(qsgd(4), 0.5)",
    "error_feedback(switch(warmup(2), dense(), top_k(0.1)))",
    *slow(
        "error_feedback(top_k(0.1))",
        "ef21_sgdm(top_k(0.1))",
        "monitor(error_feedback(block_max(8)))",
    ),
]


def loss_fn(params, extra, batch):
    """Squares, with a running mean of the inputs as a BatchNorm has."""
    x, y = batch
    loss = jnp.mean(jnp.square(x @ params["kernel"] + params["bias"] - y))
    return loss, (
        {"mean": 0.9 * extra["mean"] + 0.1 * x.mean(axis=0)},
        {"largest": jnp.max(jnp.abs(x))},
    )


def start(optimizer):
    """The step and its state, placed."""
    mesh = data_mesh(WORKERS)
    params = replicate(PARAMS, mesh)
    extra = replicate({"mean": np.zeros(12, np.float32)}, mesh)
    state = [params, init_state(optimizer, params, mesh), extra]
    return jaxcompress.make_train_step(loss_fn, optimizer, mesh), state


def batch_with(value=None):
    """The batch, with one entry of one worker's input replaced."""
    x = X.copy()
    if value is not None:
        x[3, 5] = value
    return shard_batch((x, Y), data_mesh(WORKERS))


def chain(expression="error_feedback(top_k(0.1))", rule=None, **options):
    link = compress(parse(expression), min_compression_rate=0)
    return apply_if_all_finite(optax.chain(link, rule or optax.adam(0.1)), **options)


def take(step, state, *batches):
    """The state after these batches, and the last metrics; the state that was given stays."""
    state = jax.tree.map(jnp.copy, state)
    for batch in batches:
        *state, metrics = step(*state, batch)
    return state, metrics


def on_host(tree):
    return jax.tree.map(as_numpy, tree)


@pytest.mark.parametrize("text", MEMORIES)
def test_nothing_of_a_skipped_step_stays(text):
    rule = optax.sgd(0.01) if "momentum" in text else None
    step, first = start(chain(text, rule))
    before, _ = take(step, first, batch_with(), batch_with())
    for bad in (np.nan, np.inf):
        after, metrics = take(step, before, batch_with(bad))
        assert_same_bits(on_host(after[0]), on_host(before[0]))
        assert_same_bits(on_host(after[1].inner), on_host(before[1].inner))
        assert_same_bits(on_host(after[2]), on_host(before[2]))
        assert metrics["applied"] == 0 and not np.isfinite(metrics["loss"])
        told = skipped_steps(after[1])
        assert (told["applied"], told["skipped"], told["skipped_in_a_row"]) == (False, 1, 1)


def test_the_step_after_it_is_as_if_it_had_not_been():
    step, first = start(chain())
    without, metrics = take(step, first, batch_with(), batch_with())
    with_it, _ = take(step, first, batch_with(), batch_with(np.nan), batch_with())
    assert_same_bits(on_host(with_it[0]), on_host(without[0]))
    assert_same_bits(on_host(with_it[1].inner), on_host(without[1].inner))
    told = skipped_steps(with_it[1])
    assert (told["applied"], told["skipped"], told["skipped_in_a_row"], metrics["applied"]) == (
        True,
        1,
        0,
        1,
    )


@pytest.mark.parametrize(
    "text", ["error_feedback(power_sgd(2))", *slow("error_feedback(top_k(0.1))")]
)
def test_without_bad_steps_it_changes_nothing(text):
    plain = optax.chain(compress(parse(text), min_compression_rate=0), optax.adam(0.1))
    (step, first), (plain_step, plain_first) = start(apply_if_all_finite(plain)), start(plain)
    (params, state, _), _ = take(step, first, *[batch_with()] * 3)
    (plain_params, plain_state, _), _ = take(plain_step, plain_first, *[batch_with()] * 3)
    assert_close(on_host(params), on_host(plain_params))
    assert_close(on_host(state.inner[1:]), on_host(plain_state[1:]))


def test_a_link_that_makes_nan_finite_does_not_drain_the_memory():
    clean = optax.stateless(lambda updates, params: jax.tree.map(jnp.nan_to_num, updates))
    link = compress(parse("error_feedback(top_k(0.1))"), min_compression_rate=0)
    step, first = start(apply_if_all_finite(optax.chain(clean, link, optax.sgd(0.1))))
    before, _ = take(step, first, batch_with())
    after, metrics = take(step, before, batch_with(np.nan))
    assert metrics["applied"] == 0
    assert_same_bits(on_host(after[1].inner), on_host(before[1].inner))


def test_one_around_a_part_is_refused():
    labels = {"kernel": "a", "bias": "b"}
    parts = {
        "a": apply_if_all_finite(
            optax.chain(compress(parse("dense()")), optax.sgd(0.1)), loss_scale=8.0
        )
    }
    parts["b"] = optax.chain(compress(parse("dense()")), optax.sgd(0.1))
    twice = apply_if_all_finite(apply_if_all_finite(parts["b"]))
    for optimizer in (
        optax.partition(parts, labels),
        optax.chain(optax.identity(), parts["a"]),
        twice,
    ):
        step, first = start(optimizer)
        with pytest.raises(ValueError, match="apply_if_all_finite is around a part of the opt"):
            step.trace(*first, batch_with())
    around = apply_if_all_finite(optax.partition({"a": parts["b"], "b": parts["b"]}, labels))
    injected = optax.inject_hyperparams(
        lambda rate: apply_if_all_finite(optax.chain(compress(parse("dense()")), optax.sgd(rate)))
    )
    for optimizer in (around, injected(0.1)):
        step, first = start(optimizer)
        step.trace(*first, batch_with())


def test_every_kind_of_array_passes():
    optimizer = apply_if_all_finite(optax.identity())
    kinds = {
        "empty": jnp.zeros((4, 0, 3)),
        "scalar": jnp.ones(4),
        "complex": jnp.full((4, 2), 1 + 2j),
        "count": jnp.arange(4, dtype=jnp.int32),
    }

    def one_worker(updates):
        return optimizer.update(updates, optimizer.init(updates))

    run = jax.vmap(one_worker, axis_name="data")
    updates, state = run(kinds)
    assert_same_bits(updates, kinds)
    assert state.applied.all()
    bad = kinds | {"complex": kinds["complex"].at[2, 1].set(complex(0, np.nan))}
    updates, state = run(bad)
    assert (
        not state.applied.any()
        and not np.any(updates["complex"])
        and updates["count"].dtype == jnp.int32
    )


@pytest.mark.parametrize("loss_scale", [None, 8.0])
def test_gradients_of_integers_pass_unchanged(loss_scale):
    tree = {"x": jnp.ones(3), "count": jnp.zeros(2, jnp.int32)}
    optimizer = apply_if_all_finite(compress(parse("dense()")), loss_scale=loss_scale)

    def one_worker(x):
        def loss(params):
            return jnp.sum(params["x"] * x) + 0.0 * params["count"].sum()

        grads = jax.grad(loss, allow_int=True)(tree)
        updates, state = optimizer.update(grads, optimizer.init(tree), tree)
        assert updates["count"].dtype == jax.dtypes.float0
        return updates["x"], state.applied

    rows = jnp.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    updates, applied = jax.vmap(one_worker, axis_name="data")(rows)
    np.testing.assert_array_equal(updates, np.full((2, 3), 2 / (loss_scale or 1)))
    assert applied.all()
    *_, applied = jax.vmap(one_worker, axis_name="data")(rows.at[1, 0].set(jnp.inf))
    assert not applied.any()


def test_a_new_state_can_be_donated_and_a_wrong_axis_is_told():
    optimizer = apply_if_all_finite(optax.sgd(0.1))
    state = optimizer.init({"x": jnp.ones(3)})
    jax.jit(lambda state: jax.tree.map(jnp.copy, state), donate_argnums=0)(state)
    with pytest.raises(ValueError, match="there is no mesh axis 'data' here"):
        optimizer.update({"x": jnp.ones(3)}, state)


def test_it_costs_one_all_reduce_of_four_bytes():
    def collectives(optimizer):
        step, state = start(optimizer)
        jaxpr = step.trace(*state, batch_with()).jaxpr
        return jaxcompress.traffic_of_jaxpr(jaxpr)

    plain = collectives(
        optax.chain(compress(error_feedback(block_max(8)), min_compression_rate=0), optax.sgd(0.1))
    )
    safe = collectives(chain("error_feedback(block_max(8))", optax.sgd(0.1)))
    assert safe.payload_bytes - plain.payload_bytes == 4
    assert len(safe.collectives) - len(plain.collectives) == 1


def test_the_memory_is_still_written_in_place():
    average = compress(error_feedback(block_max(128)))
    assert temporary_copies(apply_if_all_finite(average)) < 0.2


def test_a_loss_scale_changes_no_update():
    steps = [
        start(chain(rule=optax.sgd(0.1), **options)) for options in ({}, {"loss_scale": 2.0**10})
    ]
    (plain, _), (scaled, metrics) = (
        take(step, first, *[batch_with()] * 3) for step, first in steps
    )
    # A power of two changes no digit.
    assert_same_bits(on_host(scaled[0]), on_host(plain[0]))
    assert_same_bits(on_host(scaled[1].inner), on_host(plain[1].inner))
    assert metrics["loss"] < 100


def test_a_loss_scale_halves_on_overflow_and_doubles_after_an_interval():
    step, first = start(chain(rule=optax.sgd(0.1), loss_scale=8.0, growth_interval=3))
    state, scales = first, []
    for value in (None, np.inf, np.inf, None, None, None, None, None, None, np.inf):
        state, _ = take(step, state, batch_with(value))
        scales.append(float(skipped_steps(state[1])["loss_scale"]))
    assert scales == [8, 4, 2, 2, 2, 4, 4, 4, 8, 4]


def test_a_loss_scale_stays_in_its_range():
    step, first = start(chain(rule=optax.sgd(0.1), loss_scale=2.0**24, growth_interval=1))
    state, _ = take(step, first, batch_with())
    assert skipped_steps(state[1])["loss_scale"] == 2.0**24
    step, first = start(chain(rule=optax.sgd(0.1), loss_scale=1))
    state, _ = take(step, first, batch_with(np.nan))
    assert skipped_steps(state[1])["loss_scale"] == 1


def test_float16_gradients_come_back_from_below_its_range():
    """A backward pass in float16 through a factor of 1e-9: zero without a scale, and right with
    one.
    """

    def small_loss(params, extra, batch):
        x, _ = (part.astype(jnp.float16) for part in batch)
        out = (x @ params["kernel"].astype(jnp.float16)).astype(jnp.float32)
        return 1e-9 * jnp.sum(out), (extra, {})

    moved = {}
    for scale in (None, 2.0**20):
        optimizer = chain("dense()", optax.sgd(2.0**20), loss_scale=scale)
        _, state = start(optimizer)
        after, _ = take(
            jaxcompress.make_train_step(small_loss, optimizer, data_mesh(WORKERS)),
            state,
            batch_with(),
        )
        moved[scale] = np.asarray(after[0]["kernel"]) - PARAMS["kernel"]
    assert not np.any(moved[None])
    expected = -(2.0**20) * 1e-9 * X.reshape(WORKERS, 2, 12).sum(axis=1).mean(axis=0)
    # float16 keeps 11 bits.
    np.testing.assert_allclose(moved[2.0**20], np.tile(expected[:, None], 8), rtol=2e-3, atol=2e-6)


def test_without_one_there_is_nothing_to_tell():
    assert skipped_steps(optax.adam(0.1).init(PARAMS)) == {}


def test_a_compressor_alone_is_refused():
    with pytest.raises(ValueError, match=r"what apply_if_all_finite takes is an Optax .*; got top"):
        apply_if_all_finite(parse("top_k(0.1)"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"loss_scale": 0.5},
            "loss_scale is what the loss is multiplied by at first, from 1 to 2.24; got 0.5",
        ),
        ({"loss_scale": float("nan")}, "loss_scale .* got nan"),
        ({"loss_scale": True}, "loss_scale .* got True"),
        ({"growth_interval": 0}, "growth_interval is .*, an integer of at least 1; got 0"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        apply_if_all_finite(optax.sgd(0.1), **options)


@pytest.mark.parametrize(
    ("shape", "expression"),
    slow_unless(
        [
            ((4096,), "error_feedback(sign())"),
            ((64, 64), "terngrad()"),
            ((64, 64), "error_feedback(top_k(0.1))"),
        ],
        ((4096,), (64, 64)),
        ("error_feedback(sign())", "terngrad()", "error_feedback(top_k(0.1))"),
    ),
)
def test_one_nan_among_many_numbers_skips_the_step(shape, expression):
    """A maximum of so many floats loses NaN on CPUs."""
    mesh, optimizer = data_mesh(WORKERS), chain(expression, optax.sgd(0.1))

    def loss(params, extra, batch):
        return jnp.sum(params["w"] * batch[0]), (extra, {})

    params = replicate({"w": np.ones(shape, np.float32)}, mesh)
    step = jaxcompress.make_train_step(loss, optimizer, mesh)
    batch = np.ones((WORKERS, *shape), np.float32)
    batch[1].flat[5] = np.nan
    params, state, *_ = step(
        params, init_state(optimizer, params, mesh), {}, shard_batch(batch, mesh)
    )
    assert skipped_steps(state)["skipped"] == 1
    assert np.all(np.asarray(params["w"]) == 1)
