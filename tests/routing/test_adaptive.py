"""A compressor whose level a rule chooses."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import assert_same_bits, first_state, random_updates, run
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress import (
    Rule,
    accordion,
    accuracy,
    adaptive,
    apply_if_all_finite,
    bandwidth,
    compress,
    data_mesh,
    dense,
    error_feedback,
    gain,
    hierarchical,
    init_state,
    levels,
    make_train_step,
    partition,
    replicate,
    schedule,
    shard_batch,
    switch,
    top_k,
    traffic_of_hlo,
    warmup,
)

TREE = {"matrix": jnp.zeros((10, 10)), "vector": jnp.zeros((20,))}


def outcomes(compressor, steps, how="shard_map"):
    """What comes out of each of so many steps with fresh updates."""
    state = first_state(compressor, TREE)
    for step in range(steps):
        outcome = run(compressor, random_updates(step, TREE), state, how=how)
        yield outcome
        state = outcome.state


def recorded(*needs: str) -> Rule:
    """A rule that keeps what it saw last, and stays at level 0."""

    def observe(state, statistics, count):
        del state
        values = {name: getattr(statistics, name) for name in needs}
        return {"count": count, "level": statistics.level, **values}

    start = {"count": 0, "level": 0} | dict.fromkeys(needs, 0.0)
    return Rule(
        init=lambda: jax.tree.map(jnp.asarray, start),
        observe=observe,
        index=lambda state: jnp.int32(0),
        needs=needs,
    )


def asked(indices, needs=()) -> Rule:
    """A rule that asks for these levels, one after each step."""
    return Rule(
        init=lambda: jnp.int32(0),
        observe=lambda state, statistics, count: jnp.asarray(indices, jnp.int32)[count],
        index=lambda state: state,
        needs=needs,
    )


@pytest.mark.parametrize("how", ["shard_map", "vmap"])
def test_a_schedule_equals_switch(how):
    levels = dense(), top_k(0.5), top_k(0.1)
    expected = outcomes(switch(warmup(2), *levels), 6, how)
    found = outcomes(adaptive(schedule(warmup(2)), *levels), 6, how)
    for one, other in zip(found, expected, strict=True):
        assert_same_bits(one[:3], other[:3])
        np.testing.assert_array_equal(one.bits, other.bits)


@pytest.mark.parametrize("how", ["shard_map", "vmap"])
def test_a_rule_sees_the_energies_of_the_docstring(how):
    rule = recorded("mean", "update", "residual", "sent")
    outcome = next(outcomes(adaptive(rule, top_k(0.1)), 1, how))
    updates = random_updates(0, TREE)

    def mean_energy(tree):
        return sum(np.square(np.float64(x)).sum() for x in jax.tree.leaves(tree)) / 4

    found = outcome.state.rule
    expected = {
        "mean": mean_energy(outcome.mean),
        "update": mean_energy(updates),
        "residual": mean_energy(outcome.residual),
        "sent": mean_energy(jax.tree.map(np.subtract, updates, outcome.residual)),
    }
    assert {name: float(found[name]) for name in expected} == pytest.approx(expected, rel=1e-5)


def test_levels_are_clipped_and_changes_are_counted():
    found = list(outcomes(adaptive(asked([0, 7, 7, -3, 1]), dense(), top_k(0.1)), 5))
    assert [int(one.state.level) for one in found] == [0, 1, 1, 0, 1]
    assert [int(one.state.changes) for one in found] == [0, 1, 1, 2, 3]


def test_a_level_stays_for_the_dwell():
    compressor = adaptive(asked([1, 0, 1, 0, 0, 0, 1, 1, 1]), dense(), top_k(0.1), dwell=3)
    found = [int(one.state.level) for one in outcomes(compressor, 9)]
    assert found == [0, 0, 1, 1, 1, 0, 0, 0, 1]


def test_a_step_that_is_not_finite_does_not_count():
    compressor = adaptive(gain(0.01, window=1), top_k(0.5), top_k(0.1))
    state = first_state(compressor, TREE)
    bad = random_updates(0, TREE)
    bad["vector"] = bad["vector"].at[1, 3].set(jnp.nan)
    after = run(compressor, bad, state).state
    assert_same_bits((after.rule, after.observed), (state.rule, state.observed))
    assert (int(after.level), after.steps.tolist()) == (0, [1, 0])
    assert int(run(compressor, random_updates(1, TREE), after).state.level) == 1


def test_conservation_across_changes_of_the_level():
    """What is sent and what the memory holds is all that came in."""
    compressor = error_feedback(
        adaptive(asked([1, 2, 0, 1, 2, 2]), top_k(0.5), top_k(0.1), dense())
    )
    total = jax.tree.map(lambda x: np.zeros(x.shape), TREE)
    found = None
    for step, found in enumerate(outcomes(compressor, 6)):
        came = jax.tree.map(lambda x: np.float64(x).mean(0), random_updates(step, TREE))
        total = jax.tree.map(lambda t, x, m: t + x - m[0], total, came, found.mean)
        memory = found.state.error.value.arrays
        jax.tree.map(
            lambda t, e: np.testing.assert_allclose(t, np.mean(e, 0), atol=1e-5), total, memory
        )
    assert found is not None
    assert int(found.state.inner.changes) == 5


def step_of(rule, **options):
    """A training step with this rule, its first state and a batch, on four workers."""
    mesh = data_mesh(4)
    params = replicate({"w": np.ones((40, 30), np.float32)}, mesh)
    link = compress(error_feedback(adaptive(rule, dense(), top_k(0.1))))
    optimizer = optax.chain(link, optax.sgd(0.01))
    rows = shard_batch(np.random.default_rng(0).standard_normal((8, 40), np.float32), mesh)
    step = make_train_step(
        lambda params, batch: jnp.mean((batch @ params["w"] - 1) ** 2), optimizer, mesh, **options
    )
    return step, (params, init_state(optimizer, params, mesh), {}), rows


@pytest.mark.parametrize(
    ("rule", "collectives", "sent"),
    [
        (accordion(every=2), 0, 0),
        (bandwidth(1e6), 0, 0),
        (schedule(warmup(2)), 0, 0),
        (gain(0.5), 1, 8),
        (accuracy(3), 1, 4),
        (recorded("mean", "update", "residual", "sent"), 1, 12),
    ],
    ids=["accordion", "bandwidth", "schedule", "gain", "accuracy", "all"],
)
def test_a_rule_costs_at_most_one_small_all_reduce(rule, collectives, sent):
    def messages(rule):
        step, state, rows = step_of(rule)
        text = step.lower(*state, rows).compile().as_text()
        found = traffic_of_hlo(text, branch=lambda choices: choices[0]).collectives
        return sorted(one.payload_bytes for one in found)

    none, found = messages(schedule(lambda count: 0 * count)), messages(rule)
    # The all-reduce of a few scalars may be joined with that of the loss.
    assert len(found) - len(none) <= collectives
    assert sum(found) - sum(none) == sent


def test_one_compiled_step_follows_the_bandwidth():
    step, state, rows = step_of(bandwidth(1e8))
    compiled, found = None, []
    for rate in (1e9, 5e7, 5e7, 1e9, 1e9):
        given = {"bandwidth": jnp.float32(rate)}
        compiled = compiled or step.lower(*state, rows, **given).compile()
        *state, _ = compiled(*state, rows, **given)
        found.append(int(levels(state[1])["level"]))
    assert found == [0, 1, 1, 0, 0]
    *state, _ = step(*state, rows)  # without one, the last counts
    *state, _ = step(*state, rows, bandwidth=jnp.float32(jnp.nan))
    assert int(levels(state[1])["level_changes"]) == 2


def test_before_the_first_rate_the_level_is_the_first():
    step, state, rows = step_of(bandwidth(1e8))
    for _ in range(2):
        *state, _ = step(*state, rows)
    assert int(levels(state[1])["level"]) == 0


def test_a_link_that_is_too_fast_to_measure_is_fast():
    step, state, rows = step_of(bandwidth(1e8))
    found = []
    for rate in (5e7, np.inf, np.inf):
        *state, _ = step(*state, rows, bandwidth=jnp.float32(rate))
        found.append(int(levels(state[1])["level"]))
    assert found == [1, 0, 0]


def test_the_training_step_gives_the_mean_loss():
    step, state, rows = step_of(recorded("loss"))
    *state, metrics = step(*state, rows)
    (node,) = [
        node
        for node in jax.tree.leaves(
            state[1], is_leaf=lambda x: isinstance(x, jaxcompress.AdaptiveState)
        )
        if isinstance(node, jaxcompress.AdaptiveState)
    ]
    assert float(node.rule["loss"]) == float(metrics["loss"]) > 0


def test_a_step_without_the_loss_is_refused():
    link = compress(error_feedback(adaptive(accuracy(3), dense(), top_k(0.1))))

    def update(x):
        return link.update({"w": x}, link.init({"w": x}))[0]

    with pytest.raises(ValueError, match=r"reads the training loss.*update\(…, loss=loss\)"):
        jax.vmap(update, axis_name="data")(jnp.ones((4, 100)))


def test_no_event_is_lost_in_a_step_that_is_not_finite():
    """The rate drops after the second step that the rule sees."""
    compressor = adaptive(accordion(every=1, drops=(3,)), top_k(0.5), top_k(0.1))
    state, found = first_state(compressor, TREE), []
    good = random_updates(0, TREE)
    bad = jax.tree.map(lambda x: x * jnp.nan, good)
    for updates in (good, good, bad, good, good):
        state = run(compressor, updates, state).state
        found.append(int(state.level))
    assert found == [0, 1, 1, 0, 1]


def test_what_no_rule_needs_may_be_anything():
    link = compress(error_feedback(top_k(0.1)))

    def update(x):
        state = link.init({"w": x})
        return link.update({"w": x}, state, loss={"own": x.sum()}, bandwidth="fast")[0]

    jax.vmap(update, axis_name="data")(jnp.ones((4, 100)))


@pytest.mark.parametrize("given", [np.ones(4, np.float32), "fast", {}])
def test_a_rate_is_one_number(given):
    link = compress(error_feedback(adaptive(bandwidth(1e6), dense(), top_k(0.1))))

    def update(x):
        return link.update({"w": x}, link.init({"w": x}), bandwidth=given)[0]

    with pytest.raises(ValueError, match="bandwidth is one number for all workers"):
        jax.vmap(update, axis_name="data")(jnp.ones((4, 100)))


def test_devices_of_a_node_do_not_adapt_each():
    with pytest.raises(ValueError, match=r"adaptive\(rule, hierarchical\(dense\(\), top_k"):
        hierarchical(dense(), adaptive(gain(0.5), top_k(0.1), top_k(0.01)))


def test_each_part_of_a_partition_has_a_level_of_its_own():
    adapting = adaptive(gain(0.05, window=1), dense(), top_k(0.01))
    compressor = partition(
        {"matrix": adapting, "vector": adaptive(accordion(every=9), dense(), top_k(0.1))},
        jaxcompress.by_path({"matrix": "matrix", "vector": "vector"}),
    )
    *_, last = outcomes(compressor, 1)
    found = levels(last.state)
    assert (float(found["level"]), int(found["level_changes"])) == (0.5, 1)
    assert found["steps_at_level"].tolist() == [1, 0]


def test_steps_are_counted_at_each_level():
    *_, last = outcomes(adaptive(asked([0, 7, 7, -3, 1]), dense(), top_k(0.1)), 5)
    assert levels(last.state)["steps_at_level"].tolist() == [3, 2]


def test_levels_of_a_state_without_any_are_empty():
    assert levels(first_state(top_k(0.1), TREE)) == {}


def test_a_skipped_step_changes_no_level():
    mesh = data_mesh(4)
    params = replicate({"w": np.ones((40, 30), np.float32)}, mesh)
    compressor = error_feedback(adaptive(gain(0.001, window=1), top_k(0.5), top_k(0.1)))
    optimizer = apply_if_all_finite(optax.chain(compress(compressor), optax.sgd(0.01)))
    state = init_state(optimizer, params, mesh)
    step = make_train_step(lambda params, batch: jnp.mean(batch @ params["w"]), optimizer, mesh)
    bad, good = np.ones((2, 8, 40), np.float32)
    bad[3, 5] = np.nan
    found = []
    for rows in (bad, good, bad):
        params, state, _, metrics = step(params, state, {}, shard_batch(rows, mesh))
        found.append((int(metrics["applied"]), int(levels(state)["level"])))
    assert found == [(0, 0), (1, 1), (0, 1)]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "adaptive takes compressors after its rule, at least one"),
        ((dense(), "top_k(0.1)"), {}, "adaptive takes compressors after its rule"),
        ((dense(),), {"dwell": 0}, "dwell is the least number of steps between two changes"),
        (
            (dense(), jaxcompress.momentum_correction(top_k(0.1))),
            {},
            r"Put it outside: momentum_correction\(adaptive",
        ),
    ],
)
def test_what_it_cannot_choose_among_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        adaptive(accordion(every=3), *arguments, **options)


@pytest.mark.parametrize("rule", [gain(0.5), accuracy(3.0)])
def test_a_rule_that_reads_residuals_takes_no_memory_inside(rule):
    inside = [error_feedback(top_k(density)) for density in (0.1, 0.01)]
    with pytest.raises(ValueError, match=r"Put the memory outside: error_feedback\(adaptive"):
        adaptive(rule, *inside)
    adaptive(accordion(every=3), *inside)  # reads the mean


def test_a_loss_that_differs_between_workers_is_refused():
    """They would take different levels, and wait for each other for ever."""
    link = compress(error_feedback(adaptive(accuracy(3.0), dense(), top_k(0.1))))

    def update(x):
        own = {"w": x[0]}
        return link.update(own, link.init(own), loss=jnp.sum(x))[0]

    step = jax.shard_map(update, mesh=data_mesh(4), in_specs=P("data"), out_specs=P())
    with pytest.raises(ValueError, match=r"loss differs between workers.*pmean\(loss, 'data'\)"):
        jax.eval_shape(step, jax.ShapeDtypeStruct((4, 100), jnp.float32))
