"""What the optimizers share: two kinds of steps in one program, zero gradients, states, bytes, and
the freeze.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from digits_helpers import accuracy, learn
from helpers import FLOAT32, assert_close, assert_same_bits, slow, vmap_axes
from invariants import own_parts
from optimizer_helpers import (
    WORKERS,
    assert_replicas_are_equal,
    mapped,
    placed,
    random_gradients,
    updates_of,
)

import jaxcompress
from jaxcompress import (
    compress,
    dense,
    error_feedback,
    momentum_correction,
    onebit_adam,
    sign,
    traffic_of_jaxpr,
)
from jaxcompress.contrib import onebit_lamb, zero_one_adam
from jaxcompress.distributed.placement import as_numpy, map_per_worker
from jaxcompress.distributed.specs import is_per_worker
from jaxcompress.optimizers.onebit_common import SETTLED, Moments, Steps, freezing

PARAMS = {"matrix": jnp.linspace(-1, 1, 4096).reshape(64, 64), "vector": jnp.linspace(1, 2, 40)}
# All are past their dense start after so many steps, and step 4 of each is a compressed one.
DENSE = 3
SIGNS = compress(error_feedback(sign()))
MAKERS = {
    "onebit_adam": lambda rate=0.01, average=SIGNS, **options: onebit_adam(
        rate, average, freeze_step=DENSE, **options
    ),
    "onebit_lamb": lambda rate=0.01, average=SIGNS, **options: onebit_lamb(
        rate, average, freeze_step=DENSE, **{"weight_decay": 0.01, **options}
    ),
    "zero_one_adam": lambda rate=0.01, average=SIGNS, **options: zero_one_adam(
        rate, average, updates_per_interval=DENSE - 1, **options
    ),
}


@functools.cache
def made(name: str) -> optax.GradientTransformationExtraArgs:
    """One of each, so that their programs are compiled once."""
    return MAKERS[name]()


# One process takes all tests of an optimizer, so that its program is compiled once.
every_optimizer = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in MAKERS]
)
# What they take from onebit_common as it is.
one_optimizer = pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                pytest.mark.xdist_group(name),
                *([] if name == "onebit_adam" else [pytest.mark.slow]),
            ],
        )
        for name in MAKERS
    ],
)


@every_optimizer
def test_replicas_are_equal_to_the_last_bit(name):
    updates, params, state = updates_of(made(name), PARAMS, random_gradients(PARAMS, 8))
    parts = jax.tree.leaves(state, is_leaf=is_per_worker)
    same = [x for x in parts if not is_per_worker(x)]
    assert len(same) < len(parts)
    assert_replicas_are_equal((updates, params, same))


@every_optimizer
def test_both_kinds_of_steps_are_one_program_and_leave_what_has_no_gradient(name, caplog):
    grads = random_gradients(PARAMS, 60)
    grads["matrix"][:, :, :10] = 0
    grads["vector"][:] = 0
    with jax.log_compiles():
        updates, _, state = updates_of(MAKERS[name](weight_decay=0.0), PARAMS, grads)
    assert len([text for text in caplog.messages if text.startswith("Compiling jit(step)")]) == 1
    for each in updates:
        assert not np.any(each["matrix"][:10]) and not np.any(each["vector"])
        assert np.isfinite(each["matrix"]).all() and np.any(each["matrix"])
    moments = state[0].moments
    assert not np.any(moments.mu["matrix"][:10]) and not np.any(moments.mu["vector"])
    # What signs leave there is paid back by the next ones: it stays below a few of their sizes.
    memory = jaxcompress.error_memory(
        moments.sending, jax.tree.map(lambda x: jnp.zeros((WORKERS, *x.shape)), PARAMS)
    )
    assert np.abs(memory["matrix"][:, :10]).max() < 4 * np.abs(grads["matrix"]).mean()
    assert not np.any(memory["vector"])


@every_optimizer
def test_a_compressed_step_moves_an_eighth_of_a_dense_one_or_less(name):
    optimizer, grads = (
        made(name),
        jax.tree.map(lambda x: jnp.asarray(x[0]), random_gradients(PARAMS, 1)),
    )
    mesh = jaxcompress.data_mesh(WORKERS)
    params = jaxcompress.replicate(PARAMS, mesh)
    traced = (
        mapped(optimizer)
        .trace(params, jaxcompress.init_state(optimizer, params, mesh), grads)
        .jaxpr
    )
    branches = []
    traffic_of_jaxpr(traced, branch=lambda each: branches.extend(each) or each[0])
    of_dense, of_compressed = sorted((branch.payload_bytes for branch in branches), reverse=True)
    assert of_dense == sum(4 * x.size for x in PARAMS.values())
    assert of_compressed < of_dense / 8
    # The state tells the same of each step, as it is taken.
    for steps, payload in ((DENSE, of_dense), (DENSE + 1, of_compressed)):
        _, _, state = updates_of(optimizer, PARAMS, random_gradients(PARAMS, steps))
        assert float(state[0].moments.sending.bits) == 8 * payload


@every_optimizer
def test_state_saved_and_restored_gives_the_same_next_step(name):
    optimizer, grads = made(name), random_gradients(PARAMS, 7)
    first, last = (
        jax.tree.map(lambda x, part=part: x[part], grads) for part in (slice(5), slice(5, 7))
    )
    _, params, state = updates_of(optimizer, PARAMS, first)

    saved = [as_numpy(x) for x in jax.tree.leaves((params, state))]
    blank = (params, jaxcompress.init_state(optimizer, params, jaxcompress.data_mesh(WORKERS)))
    keys = [jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in jax.tree.leaves(blank)]
    arrays = [
        jax.random.wrap_key_data(jnp.asarray(x)) if key else jnp.asarray(x)
        for x, key in zip(saved, keys, strict=True)
    ]
    restored_params, restored = jax.tree.unflatten(jax.tree.structure(blank), arrays)
    found = updates_of(optimizer, restored_params, last, restored)
    assert_same_bits(found, updates_of(optimizer, params, last, state))


@every_optimizer
@pytest.mark.parametrize("workers", [2, *slow(8)])
def test_another_number_of_workers_keeps_the_mean_of_the_memory(name, workers):
    optimizer, grads = made(name), random_gradients(PARAMS, 6)
    _, params, state = updates_of(optimizer, PARAMS, grads)
    moved = jaxcompress.reshard_workers(state, workers)
    for before, after in zip(*(own_parts(one) for one in (state, moved)), strict=True):
        assert after.shape[0] == workers and np.any(before)
        np.testing.assert_allclose(np.mean(after, axis=0), np.mean(before, axis=0), **FLOAT32)
    more = random_gradients(PARAMS, 2, seed=1, workers=workers)
    updates, *_ = updates_of(
        optimizer, jax.tree.map(np.asarray, params), more, placed(moved, workers)
    )
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(updates))


def of_all_workers(x):
    return jnp.broadcast_to(x, (WORKERS, *x.shape))


@one_optimizer
def test_shard_map_equals_vmap(name):
    optimizer, grads = made(name), random_gradients(PARAMS, 6)
    expected, *_ = updates_of(optimizer, PARAMS, grads)
    params, state = PARAMS, map_per_worker(of_all_workers, optimizer.init(PARAMS))
    axes = vmap_axes(state)
    step = jax.jit(
        jax.vmap(optimizer.update, in_axes=(0, axes, None), out_axes=(None, axes), axis_name="data")
    )
    for place, wanted in enumerate(expected):
        updates, state = step(jax.tree.map(lambda x, place=place: x[place], grads), state, params)
        params = optax.apply_updates(params, updates)
        assert_close(updates, wanted, scale=0.01)


@every_optimizer
def test_bfloat16_and_awkward_parameters_keep_their_dtypes(name):
    params = {
        "half": jnp.ones((64, 8), jnp.bfloat16),
        "scalar": jnp.ones(()),
        "empty": jnp.zeros((0, 3)),
        "none": None,
    }
    rng = np.random.default_rng(0)
    grads = jax.tree.map(
        lambda x: jnp.asarray(rng.standard_normal((6, WORKERS, *x.shape)), x.dtype), params
    )
    updates, moved, _ = updates_of(made(name), params, grads)
    for tree in (*updates, moved):
        assert jax.tree.map(lambda x: (x.shape, x.dtype), tree) == jax.tree.map(
            lambda x: (x.shape, x.dtype), params
        )
        assert all(np.isfinite(np.asarray(x, np.float32)).all() for x in jax.tree.leaves(tree))


@one_optimizer
def test_buckets_give_the_same_steps(name):
    grads = random_gradients(PARAMS, 6)
    found, *_ = updates_of(
        MAKERS[name](average=compress(error_feedback(sign()), bucket_bytes=1)), PARAMS, grads
    )
    expected, *_ = updates_of(made(name), PARAMS, grads)
    assert_close(found, expected, scale=0.01)


@one_optimizer
def test_the_learning_rate_can_be_injected(name):
    grads = random_gradients(PARAMS, 6)
    optimizer = optax.inject_hyperparams(lambda learning_rate: MAKERS[name](learning_rate))(0.01)
    found, *_ = updates_of(optimizer, PARAMS, grads)
    expected, *_ = updates_of(made(name), PARAMS, grads)
    assert_close(found, expected, scale=0.01)


STEPS = 400
LEARNERS = {
    "onebit_adam": lambda rate: onebit_adam(rate, SIGNS, freeze_step=STEPS // 5),
    "onebit_lamb": lambda rate: onebit_lamb(rate, SIGNS, freeze_step=STEPS // 5),
    "zero_one_adam": lambda rate: zero_one_adam(rate, SIGNS),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name != "onebit_adam" else [])
        for name in LEARNERS
    ],
)
def test_the_digits_are_learnt_as_by_the_dense_twin(name):
    lamb = name == "onebit_lamb"
    rate = optax.cosine_decay_schedule(0.02 if lamb else 0.005, STEPS)
    twin = optax.lamb(rate) if lamb else optax.adam(rate)
    params, state = learn(LEARNERS[name](rate), STEPS)
    assert int(state[0].moments.variance_count) < STEPS / 2
    # As Adam's own parameters; without a bound on its steps some went beyond 1,000.
    assert max(np.abs(x).max() for x in jax.tree.leaves(params)) < 5
    # Of 360 images: one point is three of them.
    assert accuracy(params) >= accuracy(learn(optax.chain(compress(dense()), twin), STEPS)[0]) - 1


# What is refused


@pytest.mark.usefixtures("as_users_run_it")
@every_optimizer
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"b1": 1.0}, r"b1 is the decay of a running mean, in \[0, 1\); got 1.0"),
        ({"b2": -0.1}, r"b2 is the decay of a running mean, in \[0, 1\); got -0.1"),
        ({"b2": True}, r"b2 is the decay of a running mean, in \[0, 1\); got True"),
        (
            {"rate": "1e-3"},
            "learning_rate is a number of at least 0, or a schedule of Optax; got '1e-3'",
        ),
        (
            {"rate": -1e-3},
            "learning_rate is a number of at least 0, or a schedule of Optax; got -0.001",
        ),
        (
            {"weight_decay": "0.1"},
            "weight_decay is a factor of the parameters, at least 0 and finite; got '0.1'",
        ),
        (
            {"mask": "kernel"},
            "mask is a tree of bools, or a function of the parameters .*; got 'kernel'",
        ),
        ({"eps": 0}, "eps is added to a square root that can be zero, so it is above 0; got 0"),
        (
            {"average": error_feedback(sign())},
            r"the averaging link is an Optax .* got error_feedback\(sign\(\)\); write compress",
        ),
    ],
)
def test_bad_arguments_are_refused_at_construction(name, options, words):
    with pytest.raises(ValueError, match=words):
        MAKERS[name](**options)


@every_optimizer
def test_gradients_that_are_averaged_already_are_refused(name):
    average = optax.stateless(lambda updates, params: jax.lax.pmean(updates, "data"))
    with pytest.raises(ValueError, match="does not vary over the axis 'data'"):
        updates_of(optax.chain(average, made(name)), PARAMS, random_gradients(PARAMS, 1))


@every_optimizer
def test_a_state_of_all_workers_is_refused_inside_a_step(name):
    optimizer = made(name)
    state = map_per_worker(of_all_workers, optimizer.init(PARAMS))
    with pytest.raises(ValueError, match=r"where PerWorker parts are \(workers, …\)"):
        jax.make_jaxpr(optimizer.update, axis_env=[("data", WORKERS)])(PARAMS, state, PARAMS)


@every_optimizer
def test_an_averaging_link_is_a_compress_by_itself(name):
    dense_sgd = optax.with_extra_args_support(optax.sgd(0.1))
    for average in (optax.chain(optax.clip(1.0), SIGNS), dense_sgd):
        with pytest.raises(ValueError, match=r"a compress\(…\) by itself, without other links"):
            MAKERS[name](average=average).init(PARAMS)


@every_optimizer
def test_a_second_momentum_in_the_compressor_is_refused(name):
    average = compress(momentum_correction(sign(), masking=False))
    with pytest.raises(ValueError, match="Take error_feedback instead of momentum_correction"):
        MAKERS[name](average=average).init(PARAMS)


@every_optimizer
def test_a_memory_in_units_of_the_parameters_is_refused(name):
    average = compress(error_feedback(sign(), learning_rate=optax.linear_schedule(0.0, 0.1, 9)))
    with pytest.raises(ValueError, match="Leave learning_rate out of error_feedback"):
        MAKERS[name](average=average).init(PARAMS)


# The freeze, where it is found

B2 = 0.8
WINDOW = 5  # 1 / (1 - B2)


def phases_of(norms) -> list[bool]:
    """Whether the variance is frozen before each step, where dense steps make the corrected
    variance sum to these.
    """
    norms = jnp.asarray(norms, jnp.float32)

    def dense_step(grads, moments, params):
        count = moments.count + 1
        # What the bias correction divides by is multiplied in; two entries share the sum.
        entry = norms[moments.count] * (1 - B2**count) / 2
        return moments._replace(count=count, variance_count=count, nu={"x": jnp.full(2, entry)})

    def compressed_step(grads, moments, params):
        return moments._replace(count=moments.count + 1)

    steps = Steps(lambda params: params, dense_step, compressed_step, lambda moments: moments)
    rule, zero = freezing(steps, None, B2), jnp.zeros([], jnp.int32)
    moments, phase = Moments(zero, zero, {}, {"x": jnp.zeros(2)}, ()), rule.init()
    step, frozen = jax.jit(rule.step), []
    for _ in norms:
        frozen.append(bool(phase.frozen))
        moments, phase = step({}, moments, phase, None)
    return frozen


def in_numpy(norms) -> list[bool]:
    """The same from the definition."""
    for step, norm in enumerate(norms):
        before = norms[step - WINDOW] if step >= WINDOW else 0
        if norm > 0 and before > 0 and min(norm, before) / max(norm, before) >= SETTLED:
            return [later > step for later in range(len(norms))]
    return [False] * len(norms)


@pytest.mark.parametrize(
    "norms",
    [
        [1.0] * 12,
        [0.5**step for step in range(12)],
        [2.0**step for step in range(12)],
        [*(0.8**step for step in range(9)), *([0.8**9] * 12)],
        [*(1.2**step for step in range(9)), *([1.2**9] * 12)],
        [1.0, 2.0, 3.0, 4.0, 5.0, 0.95, 1.90, 2.85, 3.88, 4.81, 1.0],
        [0.0] * 12,
        [np.nan] * 12,
    ],
    ids=[
        "steady",
        "falling",
        "rising",
        "falls, then rests",
        "rises, then rests",
        "a window apart",
        "zero",
        "nan",
    ],
)
def test_frozen_once_the_variance_is_what_it_was_a_window_before(norms):
    assert phases_of(norms) == in_numpy(norms)


def test_a_steady_variance_is_frozen_after_the_first_whole_window():
    assert phases_of([1.0] * 12) == [False] * (WINDOW + 1) + [True] * 6


@pytest.mark.parametrize("make", [onebit_adam, onebit_lamb, zero_one_adam])
def test_a_skipped_step_changes_no_memory_even_if_a_link_before_hides_its_nan(make):
    params = {"kernel": jnp.ones((24, 16))}
    hide = optax.stateless(lambda grads, _: jax.tree.map(jnp.nan_to_num, grads))
    average = compress(error_feedback(sign(32)), min_compression_rate=0)
    link = jaxcompress.apply_if_all_finite(optax.chain(hide, make(1e-3, average, freeze_step=1)))

    def train(grads):
        state, seen = link.init(params), []
        for step in range(4):
            bad = jnp.where(step == 3, jnp.inf, 1.0)
            _, state = link.update({"kernel": grads["kernel"] * bad}, state, params)
            seen.append(jaxcompress.error_memory(state, params))
        return seen

    grads = {"kernel": jax.random.normal(jax.random.key(0), (4, 24, 16))}
    *_, before, after = jax.jit(jax.vmap(train, axis_name="data"))(grads)
    assert jnp.any(before["kernel"] != 0)
    assert_same_bits(after, before)
