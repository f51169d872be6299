"""Integers summed by an all-reduce, against an oracle in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, first_state, random_updates, run, slow_unless

from jaxcompress import error_feedback, int_sum, power_sgd


def oracle(updates, bits, group):
    """Mean and residuals of the docstring, in float64; updates of shape (workers, n)."""
    workers, size = updates.shape
    steps = (2**bits - 1) // (2 * workers)
    x = np.pad(updates.astype(np.float64), ((0, 0), (0, -size % group)))
    x = x.reshape(workers, -1, group)
    scale = np.abs(x).max(axis=(0, 2), keepdims=True)
    sent = np.round(x / np.where(scale == 0, 1, scale) * steps) * scale / steps
    sent = sent.reshape(workers, -1)[:, :size]
    return sent.mean(axis=0), updates - sent


WIDTHS = ((4, 8), (8, 64), (16, 512), (16, 2))


@pytest.mark.parametrize(
    ("workers", "width"),
    slow_unless(
        [(2, WIDTHS[0]), (4, WIDTHS[1]), (7, WIDTHS[1]), (1, WIDTHS[2]), (7, WIDTHS[3])],
        (1, 2, 4, 7),
        WIDTHS,
    ),
)
def test_it_is_the_scheme_of_the_docstring(workers, width):
    bits, group = width
    updates = random_updates(bits, jnp.zeros(1001), workers)
    outcome = run(int_sum(bits, group), updates, ())
    level = np.abs(np.asarray(updates)).max() / ((2**bits - 1) // (2 * workers))
    wanted = oracle(np.asarray(updates), bits, group)
    for found, one in zip((outcome.mean, outcome.residual), wanted, strict=True):
        distance = np.abs(np.asarray(found) - one)
        # In float32 an entry halfway between two levels may go to the other one.
        assert np.mean(distance > 1e-5) < 0.02
        assert distance.max() < 1.01 * level


def test_the_message_is_what_it_says():
    like = {"a": jnp.zeros((3, 100)), "b": jnp.zeros(64), "none": jnp.zeros(0)}
    bits = int_sum(8, group=64).message_bits(like)
    assert bits == {"a": 5 * (64 * 8 + 32), "b": 64 * 8 + 32, "none": 0}
    outcome = run(int_sum(8, group=64), random_updates(0, like, 2), ())
    assert set(np.asarray(outcome.bits)) == {sum(bits.values())}


def test_the_sum_of_the_largest_entries_does_not_overflow():
    updates = jnp.full((7, 512), -3.0).at[:, 1::2].set(3.0)
    for bits in (4, 8, 16):
        mean = np.asarray(run(int_sum(bits), updates, ()).mean)
        np.testing.assert_allclose(mean, np.asarray(updates), rtol=1e-6)


def test_more_workers_than_levels_are_refused():
    updates = random_updates(0, jnp.zeros(64), 8)
    with pytest.raises(ValueError, match=r"int_sum\(4\) has no level for 8 workers"):
        run(int_sum(4), updates, ())


@pytest.mark.parametrize("bits", [0, 2, 5, 32])
def test_other_widths_are_refused(bits):
    with pytest.raises(ValueError, match="bits is the size of a sum: 4, 8 or 16"):
        int_sum(bits)


def test_a_group_fills_whole_words():
    with pytest.raises(ValueError, match="a multiple of 4 for 8 bits; got 6"):
        int_sum(8, group=6)


def test_what_is_not_finite_on_one_worker_stays_in_its_group():
    compressor = int_sum(8, group=32)
    for bad in (np.nan, np.inf, -np.inf):
        updates = random_updates(3, jnp.zeros(96), 4).at[2, 40].set(bad)
        outcome = run(compressor, updates, ())
        for found in (np.asarray(outcome.mean), np.asarray(outcome.residual)):
            assert np.isnan(found[:, 32:64]).all()
            assert np.isfinite(np.delete(found, np.s_[32:64], axis=1)).all()


def test_all_arrays_as_one_give_the_same(monkeypatch):
    """On GPUs the arrays are merged; the results are those of arrays taken one by one."""
    like = {"a": jnp.zeros((3, 100)), "b": jnp.zeros(64), "none": jnp.zeros(0)}
    updates = random_updates(5, like, 4)
    one_by_one = run(int_sum(8, group=64), updates, ())
    monkeypatch.setattr("jaxcompress.compressors.quantisers.int_sum.platform", lambda: "gpu")
    merged = run(int_sum(8, group=64), updates, ())
    jax.tree.map(np.testing.assert_array_equal, merged, one_by_one)


def test_a_memory_sends_later_what_is_below_half_a_level():
    """One worker's entries are a thousandth of the other's, and still arrive."""
    compressor = error_feedback(int_sum(8))
    updates = jnp.stack([jnp.full(512, 1e-3), jnp.ones(512)])
    state, total = first_state(compressor, jnp.zeros(512), 2), np.zeros(512)
    for _ in range(40):
        outcome = run(compressor, updates, state)
        state, total = outcome.state, total + np.asarray(outcome.mean[0])
    np.testing.assert_allclose(total / 40, 0.5005, rtol=1e-3)


def test_factors_of_low_rank_travel_as_integers():
    updates = random_updates(1, jnp.zeros((40, 30)), 4)
    compressor = power_sgd(2, inner=int_sum(16))
    exact, rounded = (
        run(each, updates, first_state(each, jnp.zeros((40, 30)), 4)).mean
        for each in (power_sgd(2), compressor)
    )
    assert_close(rounded, exact, rounding=1e-2)


def test_what_is_too_small_for_a_level_of_the_mean_stays_in_the_residual():
    """The levels of the mean are W times smaller than those of a worker."""
    compressor = int_sum(16)
    for size in (1e-36, 1e-35, 2e-34, 1e-33, 1e-30):
        outcome = run(compressor, jnp.full((8, 512), size, jnp.float32), ())
        mean, residual = (np.asarray(x, np.float64) for x in (outcome.mean, outcome.residual))
        np.testing.assert_allclose(mean + residual.mean(0), size, rtol=1e-3)
