"""What a step leaves unsent: the numbers, and that measuring changes nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import WORKERS, assert_same_bits, energy, first_state, random_updates, run, runner

from jaxcompress import compress, dense, error_feedback, parse, partition, top_k, traffic
from jaxcompress.profiling.monitor import monitor, monitor_metrics
from jaxcompress.routing.labels import by_shape

TREE = {"matrix": jnp.zeros((20, 10)), "vector": jnp.zeros((30,))}
# Sums of 230 squares in float32: 230 roundings of 2^-24 each at most.
RTOL = 230 * 2.0**-24


def energies(tree) -> np.ndarray:
    """|tree|^2 of every worker, in float64."""
    return np.array([sum(energy(x[w]) for x in jax.tree.leaves(tree)) for w in range(WORKERS)])


def difference(a, b):
    return jax.tree.map(lambda x, y: np.asarray(x, np.float64) - np.asarray(y, np.float64), a, b)


def two_steps(compressor, tree=TREE):
    state = first_state(compressor, tree)
    for step in range(2):
        # The same numbers for an array whichever others stand beside it.
        updates = {name: x for name, x in random_updates(step, TREE).items() if name in tree}
        outcome = run(compressor, updates, state)
        state = outcome.state
    return outcome


@pytest.mark.parametrize("expression", ["top_k(0.1)", "qsgd(2)", "power_sgd(1)"])
def test_numbers_equal_numpy(expression):
    updates, outcome = random_updates(1, TREE), two_steps(monitor(parse(expression)))
    found = monitor_metrics(outcome.state)
    unsent = energies(difference(updates, outcome.sent))
    np.testing.assert_allclose(found["unsent_energy"], unsent / energies(updates), rtol=RTOL)
    np.testing.assert_array_equal(found["memory_norm"], np.zeros(WORKERS))
    assert np.all(unsent > 0)


def test_with_a_memory_the_whole_is_the_update_and_what_was_remembered():
    compressor = monitor(error_feedback(top_k(0.1)))
    first = run(compressor, random_updates(0, TREE), first_state(compressor, TREE))
    memory = first.state.inner.error.value.arrays
    second = run(compressor, random_updates(1, TREE), first.state)
    carried = jax.tree.map(lambda x, error: np.asarray(x + error), random_updates(1, TREE), memory)
    found = monitor_metrics(second.state)
    unsent = energies(second.state.inner.error.value.arrays)
    np.testing.assert_allclose(found["unsent_energy"], unsent / energies(carried), rtol=RTOL)
    # What is unsent is what is remembered.
    np.testing.assert_allclose(found["memory_norm"], np.sqrt(unsent), rtol=RTOL)


@pytest.mark.parametrize(
    "inner",
    [
        error_feedback(top_k(0.1)),
        partition({"matrix": error_feedback(top_k(0.1)), "rest": dense()}, by_shape()),
    ],
)
def test_memory_norm_is_the_norm_of_the_memory_in_the_state(inner):
    state = two_steps(monitor(inner)).state
    memories = jax.tree.leaves(state.inner)  # neither top_k nor dense has a state of its own
    expected = np.sqrt(energies(memories))
    np.testing.assert_allclose(monitor_metrics(state)["memory_norm"], expected, rtol=RTOL)
    assert np.all(expected > 0)


def test_zero_updates_leave_nothing_unsent():
    compressor = monitor(error_feedback(top_k(0.1)))
    zeros = jax.tree.map(lambda x: jnp.zeros((WORKERS, *x.shape)), TREE)
    found = monitor_metrics(run(compressor, zeros, first_state(compressor, TREE)).state)
    expected = {"unsent_energy": 0.0, "memory_norm": 0.0}
    assert {name: set(np.asarray(x).tolist()) for name, x in found.items()} == {
        k: {v} for k, v in expected.items()
    }


def test_dense_leaves_nothing_unsent():
    found = monitor_metrics(two_steps(monitor(dense())).state)
    np.testing.assert_array_equal(found["unsent_energy"], np.zeros(WORKERS))


EXPRESSIONS = [
    "error_feedback(top_k(0.1, inner=qsgd(4)))",
    "power_sgd(2)",
]
SWITCH = "switch(warmup(1), dense(), top_k(0.1))"


# In one process, which compiles each once.
every_expression = pytest.mark.parametrize(
    "expression",
    [
        *(pytest.param(text, marks=pytest.mark.xdist_group(text)) for text in EXPRESSIONS),
        pytest.param(SWITCH, marks=pytest.mark.slow),
    ],
)
parsed = functools.cache(parse)


@functools.cache
def measuring(expression):
    return monitor(parsed(expression))


@every_expression
def test_measuring_changes_nothing(expression):
    inner = parsed(expression)
    measured, plain = two_steps(measuring(expression)), two_steps(inner)
    assert_same_bits(measured[:4], plain[:4])
    assert_same_bits(measured.state.inner, plain.state)
    assert measuring(expression).message_bits(TREE) == inner.message_bits(TREE)


@every_expression
def test_measuring_sends_nothing(expression):
    def counted(compressor):
        step = runner(compressor, WORKERS, "shard_map")
        return traffic(
            step, jax.random.key(0), random_updates(0, TREE), first_state(compressor, TREE)
        )

    assert counted(measuring(expression)) == counted(parsed(expression))


def test_metrics_are_found_in_an_optimizer_state():
    optimizer = optax.chain(compress(error_feedback(monitor(top_k(0.1)))), optax.adam(1e-3))
    found = monitor_metrics(optimizer.init(TREE))
    assert found == {"unsent_energy": 0.0, "memory_norm": 0.0}


def test_parts_are_measured_together():
    compressor = monitor(error_feedback(top_k(0.1)))
    together = two_steps(compressor).state
    parts = [two_steps(compressor, {name: x}).state for name, x in TREE.items()]
    found, expected = monitor_metrics(parts), monitor_metrics(together)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=RTOL)


def test_no_metrics_without_a_monitor():
    assert monitor_metrics(optax.chain(compress(top_k(0.1)), optax.adam(1e-3)).init(TREE)) == {}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("inner", [None, "top_k(0.1)"])
def test_what_is_no_compressor_is_refused(inner):
    with pytest.raises(
        ValueError,
        match=r"monitor takes a compressor, such as error_feedback\(top_k\(0.01\)\); got",
    ):
        monitor(inner)


def test_what_is_not_a_number_is_not_reported_as_perfect():
    compressor = monitor(top_k(0.5))
    after_bad = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), random_updates(0, TREE))
    metrics = monitor_metrics(run(compressor, after_bad, first_state(compressor, TREE)).state)
    assert np.isnan(metrics["unsent_energy"]).all()


def test_measuring_no_array_keeps_its_type_in_a_switch():
    compressor = parse("switch(warmup(1), monitor(top_k(0.1)), top_k(0.1))")
    run(
        compressor,
        {"none": jnp.zeros((WORKERS, 0))},
        first_state(compressor, {"none": jnp.zeros((0,))}),
    )


def test_a_monitor_is_no_codec():
    with pytest.raises(ValueError, match="needs an inner compressor with a codec"):
        top_k(0.1, inner=monitor(dense()))
