"""What was not sent is remembered, and sent later."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    FLOAT32,
    WORKERS,
    assert_close,
    assert_same_bits,
    awkward_tree,
    first_state,
    random_updates,
    run,
    top_k_of_rows,
)

from jaxcompress import (
    Compressor,
    PerWorker,
    Reduced,
    dense,
    ef21,
    error_memory,
    momentum_correction,
    parse,
    power_sgd,
    reshard_workers,
    top_k,
    warmup,
)
from jaxcompress.feedback.error_feedback import error_feedback
from jaxcompress.feedback.memories import ErrorMemory

VECTOR = {"x": jnp.zeros((20,))}


def test_error_memory_starts_at_zero():
    params = {"matrix": jnp.ones((3, 4)), "half": jnp.ones((2,), jnp.bfloat16)}
    error = error_feedback(top_k(0.5)).init(jax.random.key(0), params).error
    assert isinstance(error, PerWorker)
    assert isinstance(error.value, ErrorMemory)
    assert_same_bits(error.value.arrays, {"matrix": jnp.zeros((3, 4)), "half": jnp.zeros((2,))})


def test_error_memory_adds_to_the_next_update():
    compressor = error_feedback(top_k(0.25))
    first, second = random_updates(0, VECTOR), random_updates(1, VECTOR)
    outcome = run(compressor, first, first_state(compressor, VECTOR))
    memory = np.asarray(outcome.state.error.value.arrays["x"])
    outcome = run(compressor, second, outcome.state)
    # What reaches top_k is the sum, so it is the sum's largest entries that are sent.
    carried = memory + np.asarray(second["x"])
    np.testing.assert_array_equal(
        carried - np.asarray(outcome.state.error.value.arrays["x"]), top_k_of_rows(carried, 5)
    )


def test_error_memory_stores_the_residual():
    compressor = error_feedback(top_k(0.25))
    updates = random_updates(0, VECTOR)
    state = first_state(compressor, VECTOR)
    carried = np.asarray(updates["x"])
    for _ in range(3):
        outcome = run(compressor, updates, state)
        memory = np.asarray(outcome.state.error.value.arrays["x"])
        np.testing.assert_array_equal(memory, carried - top_k_of_rows(carried, 5))
        # It is in the memory, so it is not in the residual too.
        assert not np.any(outcome.residual["x"])
        state, carried = outcome.state, memory + np.asarray(updates["x"])


def test_a_memory_of_many_parameters_is_many_memories():
    together = {f"layer{i}": jnp.zeros((i + 1, 5)) for i in range(6)}
    compressor = error_feedback(top_k(0.2))
    updates = random_updates(0, together)
    state = first_state(compressor, together)
    memories = {name: np.zeros_like(x) for name, x in updates.items()}
    for _ in range(2):
        state = run(compressor, updates, state).state
        for name, x in updates.items():
            rows = (memories[name] + np.asarray(x)).reshape(WORKERS, -1)
            memories[name] = (rows - top_k_of_rows(rows, rows.shape[1] // 5)).reshape(x.shape)
    for name, memory in memories.items():
        np.testing.assert_array_equal(state.error.value.arrays[name], memory, err_msg=name)


@pytest.mark.parametrize(
    "expression",
    [
        "error_feedback(top_k(0.1, inner=qsgd(4)))",
        "error_feedback(switch(warmup(2), power_sgd(2), dense()))",
    ],
)
def test_state_survives_serialisation(expression):
    compressor, params = (
        parse(expression),
        {"matrix": jnp.zeros((8, 6)), "half": jnp.zeros((5,), jnp.bfloat16)},
    )
    updates = random_updates(0, params)
    key_state = (jax.random.key(5), run(compressor, updates, first_state(compressor, params)).state)

    # As bytes and back: random keys as the numbers they are made of, everything else as NumPy
    # arrays.
    is_key = jax.tree.map(lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key), key_state)
    plain = jax.tree.map(
        lambda key, x: np.asarray(jax.random.key_data(x) if key else x), is_key, key_state
    )
    loaded = pickle.loads(pickle.dumps(jax.tree.leaves(plain)))
    restored = jax.tree.unflatten(jax.tree.structure(key_state), [jnp.asarray(x) for x in loaded])
    restored = jax.tree.map(
        lambda key, x: jax.random.wrap_key_data(x) if key else x, is_key, restored
    )

    assert_same_bits(restored, key_state)
    (key, state), (same_key, same_state) = key_state, restored
    assert_same_bits(
        run(compressor, updates, same_state, seed=int(jax.random.bits(same_key) % 1000)),
        run(compressor, updates, state, seed=int(jax.random.bits(key) % 1000)),
    )


@pytest.mark.parametrize("expression", ["top_k(0.1)", "power_sgd(1)"])
def test_sum_of_what_was_sent_approaches_the_true_sum(expression):
    compressor, params = error_feedback(parse(expression)), {"x": jnp.zeros((12, 10))}
    updates = random_updates(0, params)
    true_mean = np.asarray(updates["x"], np.float64).mean(axis=0)
    state, total = first_state(compressor, params), np.zeros((12, 10))
    distances = {}
    for step in range(1, 101):
        outcome = run(compressor, updates, state)
        state, total = outcome.state, total + np.asarray(outcome.mean["x"][0], np.float64)
        distances[step] = np.linalg.norm(total / step - true_mean) / np.linalg.norm(true_mean)
    # The rest is in the memory, which is bounded, so its share falls as 1/steps: tenfold from 10 to
    # 100 steps, and a factor 2 of room for a memory that is still filling at 10. It is lost without
    # the memory: first step.
    assert distances[100] < distances[10] / 5 < distances[1] / 5
    memory = np.asarray(state.error.value.arrays["x"], np.float64).mean(axis=0)
    # Rounding of 100 float32 sums: each is off by at most eps/2 of numbers as large as the memory.
    np.testing.assert_allclose(
        total + memory, 100 * true_mean, rtol=FLOAT32["rtol"], atol=100 * FLOAT32["atol"]
    )


def test_bfloat16_updates_keep_a_float32_memory():
    compressor, params = error_feedback(top_k(0.1)), {"x": jnp.zeros((10,), jnp.bfloat16)}
    # 1 + 2^-10 needs more than the 8 bits of a bfloat16: 255 small updates beside a large memory
    # would all be lost.
    small = {"x": jnp.full((WORKERS, 10), 2.0**-10, jnp.bfloat16).at[:, 0].set(1.0)}
    state = first_state(compressor, params)
    assert state.error.value.arrays["x"].dtype == jnp.float32
    for _ in range(5):
        state = run(compressor, small, state).state
    assert state.error.value.arrays["x"].dtype == jnp.float32
    np.testing.assert_array_equal(
        state.error.value.arrays["x"][:, 1:], np.full((WORKERS, 9), 5 * 2.0**-10, np.float32)
    )


def test_bfloat16_memory_carries_what_bfloat16_cannot():
    compressor, params = error_feedback(parse("cast('bfloat16')")), {"x": jnp.zeros((1,))}
    updates = {"x": jnp.full((WORKERS, 1), 1 + 2.0**-10)}
    state, total = first_state(compressor, params), 0.0
    for _ in range(64):
        outcome = run(compressor, updates, state)
        state, total = outcome.state, total + float(outcome.mean["x"][0, 0])
    # 64 * 2^-10 is 2^-4, which was sent but for what one bfloat16 near 1 cannot say: at most 2^-8.
    assert abs(total - 64 * (1 + 2.0**-10)) <= 2.0**-8


def test_a_decay_forgets_a_part_of_the_memory():
    compressor = error_feedback(top_k(0.25), decay=0.5)
    state, memory = first_state(compressor, VECTOR), np.zeros((WORKERS, 20))
    for step in range(4):
        updates = random_updates(step, VECTOR)
        carried = np.asarray(updates["x"], np.float64) + 0.5 * memory
        outcome = run(compressor, updates, state)
        state, memory = outcome.state, carried - top_k_of_rows(carried, 5)
        np.testing.assert_allclose(state.error.value.arrays["x"], memory, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_a_memory_in_fewer_bits_conserves_up_to_its_rounding(dtype):
    compressor, params, steps = (
        error_feedback(top_k(0.1), dtype=dtype),
        {"x": jnp.zeros((40, 20))},
        50,
    )
    state, total, given, bound = first_state(compressor, params), 0.0, 0.0, 0.0
    for step in range(steps):
        updates = random_updates(step, params)
        outcome = run(compressor, updates, state, seed=step)
        state = outcome.state
        total += np.asarray(outcome.mean["x"][0], np.float64)
        given += np.asarray(updates["x"], np.float64).mean(axis=0)
        memory = np.asarray(error_memory(state, updates)["x"], np.float64)
        # Of one step: 2^-7 of the entry, or a level of 256 entries, of which the largest is at most
        # that of the array.
        bound += np.abs(memory).max() * (2.0**-7 if dtype == "bfloat16" else 1 / 127)
    defect = np.abs(total + memory.mean(axis=0) - given)
    assert defect.max() <= bound
    # And it is noise, not a drift: it grows with the root of the steps, and workers' noises are
    # independent.
    assert defect.max() <= 6 * bound / np.sqrt(steps * WORKERS)
    assert defect.max() > 0
    stored = sum(x.nbytes for x in jax.tree.leaves(state.error))
    assert stored <= {"bfloat16": 0.5, "int8": 0.27}[dtype] * 4 * updates["x"].size


def test_a_memory_in_8_bits_keeps_its_mean_in_a_change_of_workers():
    compressor, params = error_feedback(top_k(0.1), dtype="int8"), {"x": jnp.zeros((40, 20))}
    state = run(compressor, random_updates(0, params), first_state(compressor, params)).state
    memory = np.asarray(error_memory(state, random_updates(0, params))["x"])
    for workers in (1, 2, 8):
        assert_resharded(state, memory, workers, params)


def assert_resharded(state, memory, workers, params):
    after = np.asarray(
        error_memory(reshard_workers(state, workers), random_updates(0, params, workers))["x"]
    )
    assert after.shape == (workers, 40, 20)
    np.testing.assert_allclose(
        after.mean(axis=0), memory.mean(axis=0), atol=0.51 / 127 * np.abs(memory).max()
    )


def test_a_rescaled_memory_is_one_in_units_of_parameters():
    """Against the scheme of Karimireddy et al., whose memory is in units of the parameters."""
    rates = np.array([1.0, 1.0, 0.1, 0.1, 0.0, 0.4, 0.4])
    compressor = error_feedback(top_k(0.25), learning_rate=lambda step: jnp.asarray(rates)[step])
    plain = error_feedback(top_k(0.25))
    state, plain_state = first_state(compressor, VECTOR), first_state(plain, VECTOR)
    unsent, moved, expected, unscaled = (
        np.zeros((WORKERS, 20)),
        np.zeros(20),
        np.zeros(20),
        np.zeros(20),
    )
    for step, rate in enumerate(rates):
        updates = random_updates(step, VECTOR)
        outcome, other = run(compressor, updates, state), run(plain, updates, plain_state)
        state, plain_state = outcome.state, other.state
        moved += rate * np.asarray(outcome.mean["x"][0], np.float64)
        unscaled += rate * np.asarray(other.mean["x"][0], np.float64)
        if rate > 0:
            carried = rate * np.asarray(updates["x"], np.float64) + unsent
            sent = top_k_of_rows(carried, 5)
            unsent, expected = carried - sent, expected + sent.mean(axis=0)
        else:  # in the memory at the rate of the step before; what is sent is lost
            carried = np.asarray(updates["x"], np.float64) + unsent / rates[step - 1]
            unsent = rates[step - 1] * (carried - top_k_of_rows(carried, 5))
    np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(moved - unscaled).max() > 0.01


def test_nothing_is_remembered_where_everything_is_sent():
    compressor, params = error_feedback(dense()), awkward_tree()
    outcome = run(compressor, random_updates(0, params), first_state(compressor, params))
    assert not any(np.any(x) for x in jax.tree.leaves(outcome.state.error))


def test_the_memory_is_what_the_inner_compressor_returns_as_residual():
    def reduce(key, updates, state, axis_name):
        reduced, state = dense().reduce(key, updates, state, axis_name)
        return Reduced(reduced.mean, jax.tree.map(lambda x: 0.75 * x, updates), 0), state

    compressor = error_feedback(Compressor(dense().init, reduce, dense().message_bits))
    updates = random_updates(0, VECTOR)
    outcome = run(compressor, updates, first_state(compressor, VECTOR))
    assert_close(outcome.state.error.value.arrays, jax.tree.map(lambda x: 0.75 * x, updates))


def test_error_memory_is_the_sum_of_all_memories_and_zero_where_there_is_none():
    like = {"a": jnp.ones((2,)), "b": jnp.ones((3,)), "c": jnp.ones((1,), jnp.bfloat16)}
    parts = parse(
        "partition({'one': error_feedback(top_k(0.5)), 'two': error_feedback(cast('bfloat16')),"
        " 'none': dense()}, by_path({'a': 'one', 'b': 'two'}, default='none'))"
    )
    state = jax.tree.map(jnp.ones_like, parts.init(jax.random.key(0), like))
    memory = error_memory(state, like)
    assert_same_bits(memory, {"a": jnp.ones(2), "b": jnp.ones(3), "c": jnp.zeros(1)})


@pytest.mark.parametrize("like", [(8, 6, 5), (4, 6, 6)])
def test_a_tree_of_other_shapes_than_the_memories_is_refused(like):
    state = error_feedback(top_k(0.5)).init(jax.random.key(0), {"x": jnp.zeros((4, 6, 5))})
    with pytest.raises(ValueError, match=r"other ones than they have: .* memory of \(4, 6, 5\)"):
        error_memory(state, {"x": jnp.zeros(like)})


def test_memories_of_all_workers_want_a_tree_of_all_workers():
    compressor = error_feedback(top_k(0.5))
    state = first_state(compressor, VECTOR)
    with pytest.raises(ValueError, match="first axis of workers"):
        error_memory(state, VECTOR)
    rows = state.error.value.arrays
    assert_same_bits(error_memory(state, rows), rows)


def test_error_memory_without_any_memory_is_zero():
    state = power_sgd(1).init(jax.random.key(0), VECTOR)
    assert_same_bits(error_memory(state, VECTOR), VECTOR)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"decay": 0}, r"decay is how much of the memory is carried over, in \(0, 1\]; got 0"),
        ({"decay": 1.5}, "decay .* got 1.5"),
        ({"decay": True}, "decay .* got True"),
        (
            {"dtype": "float16"},
            "dtype is how the memory is stored, one of None, 'bfloat16', 'int8'; got 'float16'",
        ),
        ({"learning_rate": warmup(5)}, "learning_rate is a schedule"),
        ({"learning_rate": lambda step: jnp.ones(3) * step}, "learning_rate is a schedule"),
        ({"learning_rate": lambda: 0.1}, "learning_rate is a schedule"),
        (
            {"learning_rate": 0.1},
            "learning_rate is a schedule, .* got 0.1. A constant rate needs none",
        ),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        error_feedback(top_k(0.1), **options)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("inner", [None, "top_k(0.01)", 0.01, top_k])
def test_what_is_no_compressor_is_refused(inner):
    with pytest.raises(
        ValueError,
        match=r"error_feedback takes a compressor, such as top_k\(0.01\); got",
    ):
        error_feedback(inner)


@pytest.mark.parametrize(
    "inner",
    [
        "error_feedback(top_k(0.1))",
        "monitor(error_feedback(top_k(0.1)))",
        "momentum_correction(top_k(0.1))",
        "ef21(top_k(0.1))",
        "control_variate(qsgd(4), 0.5)",
        "switch(warmup(1), dense(), error_feedback(top_k(0.1)))",
        "partition({'matrix': error_feedback(top_k(0.1)), 'rest': dense()}, by_shape())",
    ],
)
def test_a_memory_around_a_memory_is_refused(inner):
    with pytest.raises(ValueError, match="error_feedback takes a compressor without a memory"):
        error_feedback(parse(inner))


@pytest.mark.parametrize(
    "inner",
    [
        "qsgd(2)",
        "terngrad(clip=None)",
        "nuqsgd(2)",
        "random_k(0.01, rescale=True)",
        "bernoulli(0.01, rescale=True)",
        "importance_sampled(0.01)",
        "sign_majority()",
        "power_sgd(2, inner=terngrad())",
        "acp_sgd(2, inner=qsgd(2))",
        "block_sparse(0.1, inner=qsgd(2))",
        "shared_top_k(0.1, inner=qsgd(2))",
        "arc_top_k(0.1, inner=qsgd(2))",
        "two_phase(qsgd(2))",
        "switch(warmup(1), dense(), qsgd(2))",
        "partition({'matrix': qsgd(2), 'rest': dense()}, by_shape())",
        "monitor(qsgd(2))",
    ],
)
def test_what_does_not_contract_is_refused(inner):
    made = parse(inner)
    for outer in (error_feedback, momentum_correction, ef21):
        with pytest.raises(ValueError, match=rf"{outer.__name__} is unstable around .*control_var"):
            outer(made)


@pytest.mark.parametrize(
    "inner",
    [
        "qsgd(4)",
        "int2()",
        "nuqsgd(4)",
        "natural()",
        "random_k(0.01)",
        "bernoulli(0.01)",
        "bernoulli(0.9, rescale=True)",
        "importance_sampled(0.9)",
        "top_k(0.1, inner=qsgd(8))",
    ],
)
def test_what_contracts_is_welcome(inner):
    assert error_feedback(parse(inner)).has_memory


@pytest.mark.parametrize(
    "text", ["top_k(0.5)", "qsgd(8)", "power_sgd(1)", "cast('bfloat16')", "dense()"]
)
def test_one_step_that_is_not_finite_does_not_stay_in_the_memory(text):
    compressor = error_feedback(parse(text))
    good = random_updates(0, {"x": jnp.zeros((8, 4))})
    first = run(compressor, good, first_state(compressor, {"x": jnp.zeros((8, 4))}))
    for bad in (np.nan, np.inf, -np.inf):
        after_bad = run(compressor, {"x": good["x"].at[1, 2, 3].set(bad)}, first.state)
        after = run(compressor, good, after_bad.state)
        for part in (after_bad.state.error, after.mean, after.state.error):
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(part))


@pytest.mark.parametrize("text", ["dense()", "top_k(0.1)", "block_max(8)", "power_sgd(1)"])
def test_a_step_of_nothing_finite_keeps_all_of_the_memory(text):
    """On which `apply_if_all_finite` relies: also where the inner one says itself that nothing is
    left.
    """
    compressor, params = error_feedback(parse(text)), {"x": jnp.zeros((8, 4))}
    held = random_updates(0, params)
    state = first_state(compressor, params)._replace(error=PerWorker(ErrorMemory(held)))
    after = run(compressor, jax.tree.map(lambda x: x * jnp.nan, held), state)
    assert_same_bits(after.state.error.value.arrays, held)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_workers_round_their_memories_independently(dtype):
    like, compressor = {"x": jnp.zeros(800)}, error_feedback(top_k(0.1), dtype=dtype)
    same = {"x": jnp.broadcast_to(random_updates(0, like)["x"][0], (WORKERS, 800))}
    state = run(compressor, same, first_state(compressor, like)).state
    assert len({row.tobytes() for row in np.asarray(error_memory(state, same)["x"])}) == WORKERS
