"""Which entries are kept, that all workers keep the same ones, and the moments of what is sent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import energy, random_updates, run

from jaxcompress.contrib import bernoulli
from jaxcompress.contrib.sampling import most_of_bernoulli

STEPS = 60


def test_entries_are_sent_as_they_are_the_same_ones_by_all():
    updates = random_updates(0, jnp.zeros(200))
    outcome = run(bernoulli(0.2), updates, ())
    kept = np.asarray(outcome.sent) != 0
    assert np.all(kept == kept[0]) and 0 < kept[0].sum() < 200
    np.testing.assert_array_equal(np.asarray(outcome.sent)[kept], np.asarray(updates)[kept])


def test_a_rescaled_value_of_float16_becomes_at_most_its_largest_number():
    updates = jnp.full((4, 1000), 1000, jnp.float16)
    sent = np.asarray(run(bernoulli(0.01, rescale=True), updates, ()).sent)
    assert np.unique(sent).tolist() == [0, 65504]


@pytest.mark.parametrize("rescale", [False, True])
def test_the_moments_are_those_of_independent_draws(rescale):
    probability, x = 0.25, jnp.ones((4, 2000))
    compressor = bernoulli(probability, rescale=rescale)  # one object, so that it is compiled once
    sent = np.array([run(compressor, x, (), seed=seed).sent[0] for seed in range(STEPS)])
    value = 1 / probability if rescale else 1.0
    assert set(np.unique(sent)) == {0.0, value}
    draws = sent.size
    spread = np.sqrt(probability * (1 - probability) / draws)
    assert abs((sent > 0).mean() - probability) <= 4 * spread
    # How many of a step: binomial, and not always the same.
    counts = (sent > 0).sum(axis=1)
    assert 0.5 <= counts.var() / (2000 * probability * (1 - probability)) <= 1.6
    expected = (1 / probability - 1) if rescale else 1 - probability
    assert abs(energy(sent - 1) / draws - expected) <= 0.05


def test_a_message_has_room_for_six_standard_deviations():
    like = jax.ShapeDtypeStruct((10000,), jnp.float32)
    assert (
        bernoulli(0.1).message_bits(like)
        == 32 * most_of_bernoulli(0.1, 10000)
        == 32 * (1000 + 180 + 6)
    )


def test_probability_one_is_dense():
    updates = random_updates(1, jnp.zeros((3, 5)))
    np.testing.assert_array_equal(run(bernoulli(1.0), updates, ()).sent, updates)


@pytest.mark.parametrize("probability", [0.0, 1.5, -0.1])
def test_what_is_no_probability_is_refused(probability):
    with pytest.raises(
        ValueError, match=r"probability is the chance of an entry to be kept, in \(0, 1\]"
    ):
        bernoulli(probability)
