"""The checks of an installation let a sound compressor through, and find what breaks each promise."""

import functools

import jax
import numpy as np
import pytest

import jaxcompress
from benchmarks.laws import bits, conserved, law, prepare, replicas, two_steps


@functools.cache
def sound():
    return two_steps(prepare(jaxcompress.parse("error_feedback(top_k(0.1))"), jaxcompress.data_mesh(4)))


def changed(part: str, name: str):
    """The steps of a sound compressor, where one entry of the last array called `name` in `part` is another."""
    trees = [jax.tree.map(np.copy, tree) for tree in getattr(sound(), part)]
    trees[-1][name].flat[0] += 1
    return sound()._replace(**{part: trees})


@pytest.mark.parametrize("check", [law, conserved, replicas, bits])
def test_a_sound_compressor_is_let_through(check):
    check(sound())


def test_three_counts_of_bytes_are_compared():
    assert bits(sound()).endswith("(3 counts)")


@pytest.mark.parametrize(
    ("check", "steps", "words"),
    [
        (law, lambda: changed("sent", "kernel"), "average of what was sent"),
        (law, lambda: changed("means", "vector"), "average of what was sent"),
        (conserved, lambda: changed("updates", "vector"), "differ from what came in"),
        (replicas, lambda: changed("means", "kernel"), "'kernel' differs between devices"),
        (bits, lambda: sound()._replace(reported=7), "reported 7"),
        (bits, lambda: sound()._replace(formula=10**9), "formula 1,000,000,000"),
    ],
)
def test_what_breaks_a_promise_is_found(check, steps, words):
    with pytest.raises(AssertionError, match=words):
        check(steps())


def test_a_mean_that_is_not_finite_is_found():
    means = [jax.tree.map(lambda x: x * np.nan, tree) for tree in sound().means]
    with pytest.raises(AssertionError, match="inf"):
        law(sound()._replace(means=means))
