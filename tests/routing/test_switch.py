"""A compressor for each stretch of training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    assert_close,
    assert_same_bits,
    first_state,
    mean_over_workers,
    random_updates,
    run,
)
from jax import lax

from jaxcompress import compress, dense, error_feedback, power_sgd, top_k, warmup
from jaxcompress.routing.switch import switch

TREE = {"matrix": jnp.zeros((10, 10)), "vector": jnp.zeros((20,))}


def outcomes(compressor, steps):
    """What comes out of each of so many steps with fresh updates."""
    state = first_state(compressor, TREE)
    for step in range(steps):
        outcome = run(compressor, random_updates(step, TREE), state)
        yield outcome
        state = outcome.state


def kept(outcome) -> int:
    return np.count_nonzero(outcome.sent["matrix"][0])


@pytest.mark.parametrize("how", ["shard_map", "vmap"])
def test_dense_for_the_first_steps_is_pmean_and_then_top_k(how):
    compressor = switch(warmup(2), dense(), top_k(0.1))
    state = first_state(compressor, TREE)
    for step in range(4):
        updates = random_updates(step, TREE)
        outcome = run(compressor, updates, state, how=how)
        expected = run((dense(), top_k(0.1))[step // 2], updates, (), how=how)
        assert_same_bits(outcome[:2], expected[:2])
        np.testing.assert_array_equal(outcome.bits, expected.bits)
        state = outcome.state
        if step < 2:
            pmean = mean_over_workers(updates)
            assert_close(
                jax.tree.map(lambda x: x[0], outcome.mean), jax.tree.map(np.float32, pmean)
            )


def test_densities_fall_to_the_last_stage():
    stages = switch(warmup(2), top_k(0.5), top_k(0.2), top_k(0.05))
    assert [kept(outcome) for outcome in outcomes(stages, 8)] == [50, 50, 20, 20, 5, 5, 5, 5]


def test_an_index_beyond_the_ends_is_clipped():
    indices = jnp.array([-3, 0, 1, 2, 1000])
    compressor = switch(lambda count: indices[count], top_k(0.5), top_k(0.05))
    assert [kept(outcome) for outcome in outcomes(compressor, 5)] == [50, 50, 5, 5, 5]
    # Also where it is no array.
    (outcome,) = outcomes(switch(lambda count: 1000, top_k(0.5), top_k(0.05)), 1)
    assert kept(outcome) == 5


def test_the_count_is_the_number_of_steps_taken():
    assert [int(outcome.state.count) for outcome in outcomes(switch(warmup(1), dense()), 3)] == [
        1,
        2,
        3,
    ]


def test_only_the_state_of_the_chosen_one_moves_on():
    compressor = switch(warmup(1), power_sgd(1), error_feedback(top_k(0.1)))
    at_start = first_state(compressor, TREE).inner
    first, second = outcomes(compressor, 2)
    assert_same_bits(first.state.inner[1], at_start[1])
    assert np.any(first.state.inner[0].q["matrix"] != at_start[0].q["matrix"])
    assert_same_bits(second.state.inner[0], first.state.inner[0])
    assert np.any(second.state.inner[1].error.value.arrays["matrix"])


def test_a_memory_outside_goes_on_across_the_switch():
    compressor = error_feedback(switch(warmup(1), top_k(0.1), dense()))
    first, second = outcomes(compressor, 2)
    assert np.any(first.state.error.value.arrays["matrix"])
    # The dense step sends its update and all that the sparse one left behind.
    memory = first.state.error.value.arrays
    everything = mean_over_workers(jax.tree.map(jnp.add, random_updates(1, TREE), memory))
    mean = jax.tree.map(lambda x: x[0], second.mean)
    assert_close(mean, jax.tree.map(np.float32, everything))
    assert not any(np.any(x) for x in jax.tree.leaves(second.state.error))


def test_an_array_counts_with_its_smallest_message():
    bits = switch(warmup(1), dense(), top_k(0.1)).message_bits(TREE)
    assert bits == top_k(0.1).message_bits(TREE)
    assert bits["matrix"] < dense().message_bits(TREE)["matrix"]


def test_an_index_that_differs_between_workers_is_refused_while_tracing():
    compressor = switch(lambda count: lax.axis_index("data"), dense(), top_k(0.1))
    with pytest.raises(
        ValueError, match=r"index of switch differs between workers.*depend on the step count alone"
    ):
        list(outcomes(compressor, 1))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("schedule", [3, None, "warmup(3)", dense()])
def test_what_is_no_schedule_is_refused(schedule):
    with pytest.raises(
        ValueError, match=r"switch begins with a schedule, as in switch\(warmup\(1000\)"
    ):
        switch(schedule, dense(), top_k(0.1))


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (lambda count: 0 if count < 100 else 1, "which fails for a count inside jit, where jnp"),
        (lambda count: count >= 100, r"which gives bool\[\]\."),
        (lambda: 0, "takes 0 positional arguments"),
    ],
)
def test_a_schedule_that_does_not_work_says_why(schedule, why):
    with pytest.raises(ValueError, match=rf"switch begins with a schedule, .* got .*{why}"):
        switch(schedule, dense(), top_k(0.1))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("compressors", [(), (dense(), "top_k(0.1)"), ((dense(), top_k(0.1)),)])
def test_what_are_no_compressors_is_refused(compressors):
    with pytest.raises(
        ValueError, match="switch takes compressors after its schedule, at least one; got"
    ):
        switch(warmup(1), *compressors)


def test_a_memory_in_float32_may_stand_beside_a_branch_in_the_dtype_of_the_updates():
    like = {"half": jnp.zeros((40, 30), jnp.bfloat16)}
    compressor = switch(warmup(1), dense(), error_feedback(top_k(0.1)))
    outcome = run(compressor, random_updates(0, like), first_state(compressor, like))
    assert outcome.mean["half"].dtype == outcome.residual["half"].dtype == jnp.bfloat16


MEMORY = error_feedback(top_k(0.5))


@pytest.mark.parametrize("compressor", [MEMORY, switch(warmup(1), dense(), MEMORY)])
def test_a_large_mean_from_a_memory_stays_finite_in_float16(compressor):
    link = compress(compressor, min_compression_rate=0)
    grads = {"x": jnp.array([6e4, 5e4], jnp.float16)}
    state, largest = link.init(grads), []
    for _ in range(6):
        step = jax.vmap(
            lambda state: link.update(grads, state, grads), None, axis_size=1, axis_name="data"
        )
        mean, state = jax.tree.map(lambda x: x[0], step(state))
        largest.append(float(jnp.max(mean["x"])))
    # What waits for a step and a gradient are more than float16 holds.
    assert max(largest) == 65504
