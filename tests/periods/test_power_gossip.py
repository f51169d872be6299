"""PowerGossip: its steps in NumPy, and what both workers of a pair know."""

import jax
import numpy as np
import pytest
from gossip_helpers import Gossip, distance, mean_of, started

from jaxcompress import PerWorker, place_state, power_gossip
from jaxcompress.collectives.pairs import matchings

SHAPES = {"matrix": (12, 10)}


def factors(run):
    """P and Q of every worker and matching: (workers, cycle, n or m, rank)."""
    return [np.array(side["matrix"]) for side in run.state.rule.value]


def basis(columns):
    return np.linalg.qr(columns.astype(float))[0]


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("rank", [1, 3])
def test_its_steps_are_those_of_numpy_on_every_edge(workers, rank):
    run = Gossip(power_gossip(workers, rank), workers, shapes=SHAPES)
    cycle = matchings(workers)
    # The same Q on all workers, another one for each matching.
    start = np.random.default_rng(1).standard_normal((len(cycle), 10, rank))
    zeros, q = np.zeros((workers, len(cycle), 12, rank)), np.array([start] * workers)
    run.replace(rule=({"matrix": zeros}, {"matrix": q}))
    own = list(run.own["matrix"].astype(float))
    right = {(place, i): start[place] for place in range(len(cycle)) for i in range(workers)}
    left = {}
    for exchange, found in enumerate(run.run(6 * len(cycle))):
        place, turn = exchange % len(cycle), exchange // len(cycle) % 2
        for i, j in enumerate(cycle[place]):
            if i > j:
                continue
            difference = own[i] - own[j]
            if turn == 0:
                q = basis(right[place, i])
                left[place, i] = difference @ q
                estimate = left[place, i] @ q.T
            else:
                p = basis(left[place, i])
                right[place, i] = difference.T @ p
                estimate = p @ right[place, i].T
            own[i], own[j] = own[i] - estimate / 2, own[j] + estimate / 2
        np.testing.assert_allclose(found["matrix"], own, atol=2e-5)


@pytest.mark.parametrize("workers", [4, 5])
def test_both_workers_of_a_pair_keep_the_same_factors_and_other_pairs_have_others(workers):
    run = started(workers, 1)
    run.run(4 * len(matchings(workers)))
    for side in factors(run):
        for place, partners in enumerate(matchings(workers)):
            met = [i for i, j in enumerate(partners) if i != j]
            for worker in met:
                others = [i for i in met if np.array_equal(side[i, place], side[worker, place])]
                assert others == sorted({worker, partners[worker]})
                assert np.any(side[worker, place])


def test_a_difference_of_low_rank_is_gone_after_both_factors_were_sent():
    run = Gossip(power_gossip(2, 2), 2, shapes=SHAPES)
    random, own = np.random.default_rng(0), run.own
    low = random.standard_normal((12, 2)) @ random.standard_normal((2, 10))
    own["matrix"][1] = own["matrix"][0] + low
    run.replace(params=own)
    far, path = distance(run.own), run.run(2)
    assert distance(path[0]) > 0.05 * far
    assert distance(path[1]) < 1e-5 * far


def test_workers_come_to_their_mean_and_stay_there():
    run = Gossip(power_gossip(4, 3), 4, shapes=SHAPES)
    mean, far = mean_of(run.own)["matrix"], distance(run.own)
    path = run.run(100)
    assert distance(path[60]) < 1e-4 * far
    # Products of whole matrices round, so a part of what float32 loses there stays.
    assert max(distance(own) for own in path[80:]) < 1e-5 * far
    np.testing.assert_allclose(path[-1]["matrix"], [mean] * 4, atol=1e-5)


def test_equal_workers_stay_equal():
    run = started(4, 1)
    own = jax.tree.map(lambda x: np.array([x[0]] * 4), run.own)
    run.replace(params=own)
    jax.tree.map(np.testing.assert_array_equal, run.run(8)[-1], own)


def test_what_gains_nothing_is_sent_whole():
    # 2 rank <= min(n, m) holds for the first alone.
    shapes = {"low": (8, 9), "small": (7, 50), "vector": (40,), "scalar": ()}
    run = Gossip(power_gossip(2, 4), 2, shapes=shapes)
    own = run.run(1)[0]
    for name in ("small", "vector", "scalar"):
        np.testing.assert_array_equal(own[name][0], own[name][1])
    assert not np.array_equal(own["low"][0], own["low"][1])
    assert float(run.state.bits) == 32 * (8 * 4 + 350 + 40 + 1 + 2)


def test_a_pair_whose_factors_differ_leaves_its_matrices_and_starts_again():
    run = started(2, 1)
    run.run(4)
    p, q = jax.tree.map(np.array, run.state.rule.value)
    q["matrix"][1] *= -1
    state = run.state._replace(rule=PerWorker((p, q)))
    run.state = place_state(state, run.params, run.mesh)
    before, mean = run.own, mean_of(run.own)
    (after,) = run.run(1)
    np.testing.assert_array_equal(after["matrix"], before["matrix"])
    assert all((np.array(x) == 0).all() for x in jax.tree.leaves(run.state.rule))
    own = run.run(6)[-1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), mean_of(own), mean)
    assert distance(own) < 0.9 * distance(after)


@pytest.mark.parametrize("arguments", [(0,), (2.0,), (4, 0), (4, 1.5), (4, True)])
def test_arguments_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match="an integer of at least 1; got"):
        power_gossip(*arguments)
