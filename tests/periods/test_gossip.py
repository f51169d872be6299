"""Gossip: the mean of the workers stays, their distance falls, and nothing but pairs is sent."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gossip_helpers import Gossip, distance, mean_of, no_loss, started

from jaxcompress import (
    VirtualMesh,
    compress,
    data_mesh,
    dense,
    gossip,
    hybrid_mesh,
    init_state,
    make_flush,
    make_local_step,
    make_train_step,
    mean_over_workers,
    pair_mean,
    place_state,
    power_gossip,
    replicate,
    reshard_workers,
    rows_of_workers,
    shard_batch,
    traffic,
)
from jaxcompress.collectives.pairs import matchings

WORKERS, ROWS = 4, 24
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 6), np.float32)
Y = RNG.standard_normal((ROWS, 10), np.float32)
# Sums of a few numbers of size 1 in float32, once in each of some ten exchanges.
ROUNDING = {"rtol": 0, "atol": 2e-6}


def least_squares(params, batch):
    x, y = batch
    return jnp.mean(jnp.square(x @ params["w"] - y))


def learning(rule=None, mesh=None, inner=None, **more):
    more |= {"inner": inner or optax.sgd(0.5), "loss_fn": least_squares}
    run = Gossip(rule or pair_mean(), WORKERS, mesh, {"w": (6, 10)}, **more)
    run.batch = shard_batch((X, Y), run.mesh)
    return run


def gradients(own):
    """Of each worker's own rows at its own parameters, in float64."""
    x, y = X.reshape(WORKERS, -1, 6).astype(float), Y.reshape(WORKERS, -1, 10).astype(float)
    return [2 * x[w].T @ (x[w] @ own[w] - y[w]) / y[w].size for w in range(WORKERS)]


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("rank", [None, 1])
def test_exchanges_keep_the_mean_and_bring_workers_closer_in_every_cycle(rank, workers):
    run = started(workers, rank)
    mean, cycle, distances = mean_of(run.own), len(matchings(workers)), [distance(run.own)]
    for _ in range(4):
        for own in run.run(cycle):
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, **ROUNDING), mean_of(own), mean
            )
        distances.append(distance(run.own))
    falls = [after < 0.99 * before + 1e-6 for before, after in itertools.pairwise(distances)]
    assert all(falls)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_after_a_cycle_of_a_power_of_two_all_have_the_mean_to_the_last_bit(workers):
    run = started(workers)
    mean, exchanges = mean_of(run.own), len(matchings(workers))
    path = run.run(exchanges)
    assert all(distance(own) > 0.1 for own in path[:-1])
    for name, x in path[-1].items():
        assert all(x[0].tobytes() == one.tobytes() for one in x)
        np.testing.assert_allclose(x[0], mean[name], **ROUNDING)


def test_the_trajectory_is_that_of_numpy():
    run = learning(period=3)
    own = list(run.own["w"].astype(float))
    for step, found in enumerate(run.run(12), 1):
        own = [x - 0.5 * grad for x, grad in zip(own, gradients(own), strict=True)]
        if step % 3 == 0:
            distance_to = 1 if step // 3 % 2 == 1 else 2
            own = [(own[w] + own[w ^ distance_to]) / 2 for w in range(WORKERS)]
        np.testing.assert_allclose(found["w"], own, rtol=1e-5, atol=1e-6)


def test_workers_on_devices_of_their_own_take_the_same_steps():
    rule = power_gossip(WORKERS, 1)
    one, many = (learning(rule, mesh).run(5) for mesh in (VirtualMesh(4), data_mesh(4)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), one, many)


def test_one_worker_steps_alone():
    run = Gossip(pair_mean(), 1, inner=optax.sgd(0.5), shapes={"w": (3,)}, loss_fn=drawn_to)
    w = run.own["w"].astype(float)
    run.batch = shard_batch(np.float32([[1, 2, 3]]), run.mesh)
    for own in run.run(4):
        w = w - 0.5 * (w - [[1, 2, 3]])
        np.testing.assert_allclose(own["w"], w, rtol=1e-6, atol=1e-6)
    assert float(run.state.bits) == 0


def drawn_to(params, batch):
    """Every worker is drawn to its own row."""
    return 0.5 * jnp.sum(jnp.square(params["w"] - batch[0]))


@pytest.mark.parametrize("rank", [None, 1])
def test_an_idle_worker_keeps_its_parameters_to_the_last_bit(rank):
    run = started(3, rank)
    for partners in matchings(3):
        before, (after,) = run.own, run.run(1)
        for worker, partner in enumerate(partners):
            same = np.array_equal(before["matrix"][worker], after["matrix"][worker])
            assert same == (partner == worker)


@pytest.mark.parametrize("rank", [None, 1])
@pytest.mark.parametrize("why", ["infinite", "nan", "weight 0", "negative weight", "nan weight"])
def test_a_pair_with_a_worker_that_takes_no_part_exchanges_nothing(rank, why):
    run = started(4, rank)
    weight = np.ones(4, np.float32)
    if "weight" in why:
        weight[1] = {"weight 0": 0, "negative weight": -1, "nan weight": np.nan}[why]
    else:
        own = run.own
        own["matrix"][1, 0, 0] = {"infinite": np.inf, "nan": np.nan}[why]
        run.replace(params=own)
    before, (after,) = run.own, run.run(1, weight=weight)
    for name in before:
        np.testing.assert_array_equal(after[name][0], before[name][0])
        assert not np.array_equal(after[name][2], before[name][2])
    if "weight" in why:
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1], b[1]), after, before)
    # Its partners stay finite, and go on when it takes part again.
    rest = run.run(8, weight=weight)[-1]
    assert all(np.isfinite(x[[0, 2, 3]]).all() for x in rest.values())
    if "weight" in why:
        assert distance(run.run(4)[-1]) < 0.95 * distance(rest)


def test_a_step_that_is_not_finite_is_not_taken_but_the_worker_is_met():
    run = learning()
    before, bad = run.own["w"].astype(float), X.copy()
    bad[0] = np.inf
    run.batch = shard_batch((bad, Y), run.mesh)
    (found,) = run.run(1)
    own = [x - 0.5 * grad for x, grad in zip(before, gradients(before), strict=True)]
    own[0] = before[0]
    np.testing.assert_allclose(found["w"][0], (own[0] + own[1]) / 2, rtol=1e-5, atol=1e-6)
    assert int(run.state.count) == 1


def test_the_shared_parameters_wait_for_a_flush_which_sets_all_to_the_mean():
    run = learning(power_gossip(4), inner=optax.adam(0.1))
    run.run(6)
    np.testing.assert_array_equal(run.params["w"], 0)
    mean, moments = mean_of(run.own)["w"], jax.tree.map(np.array, run.state.inner.value)
    np.testing.assert_allclose(mean_over_workers(run.state.params)["w"], mean, **ROUNDING)
    params, state, extra = run.flush(run.params, run.state, run.extra)
    np.testing.assert_allclose(params["w"], mean, rtol=1e-6, atol=1e-6)
    assert all(np.array_equal(own, params["w"]) for own in state.params.value["w"])
    jax.tree.map(np.testing.assert_array_equal, state.inner.value, moments)
    assert all((np.array(x) == 0).all() for x in jax.tree.leaves(state.rule))
    # Nothing is left to do, so nothing is sent.
    again = run.flush(params, state, extra)
    np.testing.assert_array_equal(again[0]["w"], params["w"])
    assert float(state.bits) == 32 * mean.size and float(again[1].bits) == 0


@pytest.mark.parametrize("weight", [0.0, np.nan])
def test_a_flush_in_which_no_worker_takes_part_loses_nothing(weight):
    run = learning(power_gossip(4), outer=optax.sgd(0.7, momentum=0.5))
    run.run(3)
    before = jax.tree.map(np.array, run.state)
    params, state, extra = run.flush(run.params, run.state, run.extra, weight)
    np.testing.assert_array_equal(params["w"], run.params["w"])
    jax.tree.map(np.testing.assert_array_equal, state._replace(bits=before.bits), before)
    params, state, _ = run.flush(params, state, extra)
    np.testing.assert_allclose(params["w"], mean_of(before.params.value)["w"], **ROUNDING)


def test_a_flush_takes_the_weighted_mean():
    run, weight = learning(), np.float32([1, 2, 3, 0])
    run.run(3)
    params, *_ = run.flush(run.params, run.state, run.extra, weight)
    expected = np.average(run.own["w"], axis=0, weights=weight)
    np.testing.assert_allclose(params["w"], expected, rtol=1e-5, atol=1e-6)


def test_a_flush_brings_back_a_worker_that_is_not_finite_and_starts_outer_again():
    run = learning(outer=optax.sgd(0.7, momentum=0.5), inner=optax.sgd(0.2, momentum=0.5))
    run.run(3)
    own = run.own
    own["w"][2, 0, 0] = np.nan
    run.replace(params=own)
    run.run(1)
    mean = run.own["w"][[0, 1, 3]].mean(axis=0)
    params, state, _ = run.flush(run.params, run.state, run.extra)
    np.testing.assert_allclose(params["w"], mean, rtol=1e-5, atol=1e-6)
    (inner,) = jax.tree.leaves(state.inner.value)
    assert [bool((x != 0).any()) for x in np.array(inner)] == [True, True, False, True]
    slow, momentum = state.outer.value
    np.testing.assert_array_equal(slow["w"], [params["w"]] * 4)
    assert all((np.array(x) == 0).all() for x in jax.tree.leaves(momentum))
    run.params, run.state = params, state
    assert np.isfinite(run.run(4)[-1]["w"]).all()


def test_the_period_may_grow_while_training():
    run = learning(period=optax.piecewise_constant_schedule(1, {3: 4}))
    sent = []
    for _ in range(11):
        run.run(1)
        sent.append(float(run.state.bits) > 0)
    assert [step for step, one in enumerate(sent, 1) if one] == [1, 2, 6, 10]
    assert int(run.state.exchanges) == 4


def counting(params, extra, batch):
    extra = {"mean": 0.5 * extra["mean"] + 0.5 * batch.mean(), "seen": extra["seen"] + 1}
    return no_loss(params, batch), (extra, {})


@pytest.mark.parametrize("rank", [None, 1])
def test_only_permutes_are_sent_as_large_as_bits_says_and_none_between_exchanges(rank):
    rule = pair_mean() if rank is None else power_gossip(4, rank)
    run = Gossip(rule, 4, data_mesh(4), loss_fn=counting, period=2)
    run.extra = rows_of_workers({"mean": np.float32(0), "seen": np.int32(0)}, run.mesh)
    arguments = run.params, run.state, run.extra, run.batch
    for found in traffic(run.step, *arguments, branch=lambda branches: branches[0]):
        assert found.collectives == ()
    at_most = traffic(run.step, *arguments)
    text = run.step.lower(*arguments).compile().as_text()
    assert "collective-permute" in text
    assert "all-reduce" not in text and "all-gather" not in text
    bits = []
    for _ in range(8):
        run.run(1)
        bits.append(float(run.state.bits))
    for found in at_most:
        assert {each.operation for each in found.collectives} == {"collective-permute"}
        assert 8 * found.payload_bytes == 8 * found.wire_bytes == max(bits)
    assert bits[::2] == [0] * 4 and min(bits[1::2]) > 0
    # Of the matrix the left factor for a cycle of two exchanges, then the right one.
    entries = [120 + 8] * 4 if rank is None else [12 + 8] * 2 + [10 + 8] * 2
    words = 1 if rank is None else 2  # a number for the worker, and a checksum
    assert bits[1::2] == [32 * (one + words) for one in entries]


def test_extra_is_each_workers_own_until_a_flush():
    run = Gossip(pair_mean(), 4, loss_fn=counting)
    run.extra = rows_of_workers({"mean": np.float32(0), "seen": np.int32(0)}, run.mesh)
    run.batch = shard_batch(np.arange(4, dtype=np.float32)[:, None], run.mesh)
    run.run(2)
    own = 0.75 * np.arange(4)
    np.testing.assert_allclose(run.extra.value["mean"], own, rtol=1e-6)
    *_, extra = run.flush(run.params, run.state, run.extra)
    np.testing.assert_allclose(extra.value["mean"], [own.mean()] * 4, rtol=1e-6)
    assert extra.value["seen"].tolist() == [2] * 4


def test_a_restored_run_takes_the_same_steps():
    rule = power_gossip(WORKERS, 1)
    run = learning(rule, inner=optax.adam(0.1), outer=optax.sgd(0.7, momentum=0.5))
    run.run(3)
    saved = jax.device_get((run.params, run.state))
    path = run.run(6)
    run.params = replicate(saved[0], run.mesh)
    run.state = place_state(saved[1], run.params, run.mesh)
    jax.tree.map(np.testing.assert_array_equal, run.run(6), path)


@pytest.mark.parametrize(("old", "new"), [(4, 2), (4, 3), (2, 5), (6, 5)])
@pytest.mark.parametrize("rank", [None, 1])
def test_another_number_of_workers_keeps_the_mean(rank, old, new):
    before, after = started(old, rank), started(new, rank)
    if rank is not None:
        before.run(2 * len(matchings(old)) + 1)  # every pair has met: no factor is zero
    mean = mean_of(before.own)
    state = jax.device_get(reshard_workers(before.state, new))
    fresh = after.state.rule
    if rank is not None and len(matchings(old)) != len(matchings(new)):
        after.state = place_state(state, after.params, after.mesh)
        with pytest.raises(ValueError, match="replace `rule` in the state by that of a new"):
            after.run(1)
        state = state._replace(rule=fresh)
    after.state = place_state(state, after.params, after.mesh)
    far = distance(after.own)
    for own in after.run(6 * len(matchings(new))):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **ROUNDING), mean_of(own), mean)
    assert distance(after.own) < 0.95 * far


@pytest.mark.parametrize("axis_name", [("data",), ("node", "gpu"), "", None])
def test_pairs_need_one_axis(axis_name):
    with pytest.raises(ValueError, match=r"axis_name is one mesh axis, by name.*got"):
        gossip(optax.sgd(0.1), pair_mean(), axis_name=axis_name)


def test_what_is_no_gossip_is_refused():
    sgd = optax.sgd(0.1)
    with pytest.raises(ValueError, match="period is the number of inner steps"):
        gossip(sgd, pair_mean(), period=0)
    with pytest.raises(ValueError, match=r"rule is pair_mean\(\) or power_gossip\(workers\); got"):
        gossip(sgd, pair_mean)
    with pytest.raises(ValueError, match="inner is an Optax transformation"):
        gossip(dense(), pair_mean())
    with pytest.raises(ValueError, match="outer is an Optax transformation"):
        gossip(sgd, pair_mean(), outer=0.7)
    sending = optax.chain(compress(dense()), sgd)
    for optimizer in (gossip(sending, pair_mean()), gossip(sgd, pair_mean(), outer=sending)):
        with pytest.raises(ValueError, match="gossip sends by its rule alone"):
            optimizer.init({"w": jnp.zeros(3)})
    with pytest.raises(ValueError, match=r"'w' is bfloat16.*Keep parameters in float32"):
        gossip(sgd, pair_mean()).init({"w": jnp.zeros(3, jnp.bfloat16)})
    with pytest.raises(ValueError, match="'w' is complex64, and gossip sends real numbers"):
        gossip(sgd, pair_mean()).init({"w": jnp.zeros(3, jnp.complex64)})


def test_a_rule_for_another_number_of_workers_is_refused():
    with pytest.raises(ValueError, match="made for 8 workers, and the step has 4"):
        Gossip(power_gossip(8), 4).run(1)


def test_a_step_that_takes_gradients_at_the_shared_parameters_is_refused():
    mesh, optimizer = data_mesh(4), gossip(optax.sgd(0.1), pair_mean())
    params = replicate({"w": np.zeros(3, np.float32)}, mesh)
    state = init_state(optimizer, params, mesh)
    step = make_train_step(no_loss, optimizer, mesh)
    with pytest.raises(ValueError, match="gossip takes gradients at each worker's own parameters"):
        step(params, state, {}, shard_batch(np.zeros((4, 1), np.float32), mesh))


def test_a_sharded_model_is_refused():
    mesh, optimizer = hybrid_mesh({"data": 2, "fsdp": 4}), gossip(optax.sgd(0.1), pair_mean())
    params = replicate({"w": np.zeros(8, np.float32)}, mesh)
    state, extra = init_state(optimizer, params, mesh), rows_of_workers({}, mesh)
    batch = shard_batch(np.zeros((2, 1), np.float32), mesh)
    with pytest.raises(ValueError, match=r"shards this model over the mesh axes \('fsdp',\)"):
        make_local_step(no_loss, optimizer, mesh)(params, state, extra, batch)
    with pytest.raises(ValueError, match="shards this model"):
        make_flush(optimizer, mesh)(params, state, extra)
