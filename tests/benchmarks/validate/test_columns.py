"""The checks accept a correct compressor, and find every broken law."""

import functools

import jax
import numpy as np
import pytest

import jaxcompress
from benchmarks.validate.columns import bits, conserved, law, replicas
from benchmarks.validate.two_steps import prepare, two_steps


@functools.cache
def sound():
    return two_steps(
        prepare(jaxcompress.parse("error_feedback(top_k(0.1))"), jaxcompress.data_mesh(4))
    )


def changed(part: str, name: str):
    """The steps of a sound compressor, where one entry of the last array called `name` in `part` is
    another.
    """
    trees = [jax.tree.map(np.copy, tree) for tree in getattr(sound(), part)]
    trees[-1][name].flat[0] += 1
    return sound()._replace(**{part: trees})


@pytest.mark.parametrize("check", [law, conserved, replicas, bits])
def test_a_correct_compressor_passes(check):
    check(sound())


def test_three_counts_of_bytes_are_compared():
    assert bits(sound()).endswith("(3 counts)")


@pytest.mark.parametrize(
    ("check", "steps", "message"),
    [
        (law, lambda: changed("residuals", "kernel"), "mean and residuals differ"),
        (law, lambda: changed("means", "vector"), "mean and residuals differ"),
        (conserved, lambda: changed("updates", "vector"), "differ from the updates"),
        (replicas, lambda: changed("means", "kernel"), "'kernel' differs between devices"),
        (bits, lambda: sound()._replace(reported=7), "reported 7"),
        (bits, lambda: sound()._replace(formula=10**9), "formula 1,000,000,000"),
    ],
)
def test_a_broken_law_is_found(check, steps, message):
    with pytest.raises(AssertionError, match=message):
        check(steps())


def test_a_mean_that_is_not_finite_is_found():
    means = [jax.tree.map(lambda x: x * np.nan, tree) for tree in sound().means]
    with pytest.raises(AssertionError, match="inf"):
        law(sound()._replace(means=means))
