"""The law, conservation and what is kept, for shapes, dtypes, densities and numbers of workers that nobody chose.

Every example is a program to compile, so there are few of each, and the same ones every time.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, first_state, mean_over_workers, random_updates, run
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxcompress
from jaxcompress import error_feedback, parse

# From a density, which is a fraction of whatever the scheme counts, to its expression.
SCHEMES: dict[str, Callable[[float], str]] = {
    "top_k": lambda density: f"top_k({density})",
    "block_top_k": lambda density: f"block_top_k({density}, block=32)",
    "block_max": lambda density: f"block_max({max(2, round(1 / density))})",
    "random_k": lambda density: f"random_k({density})",
    "qsgd": lambda density: f"qsgd({2 + round(6 * density)}, group=64)",
    "sign": lambda density: f"sign({32 * max(1, round(4 * density))})",
    "int4": lambda density: f"int4(group={max(1, round(64 * density))})",
    "power_sgd": lambda density: f"power_sgd({max(1, round(6 * density))})",
}

few = settings(max_examples=4, deadline=None, derandomize=True)
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
dtypes = st.sampled_from(["float32", "bfloat16", "float16"])
densities = st.floats(0.01, 1.0).map(lambda density: round(density, 3))
workers = st.integers(1, 8)
seeds = st.integers(0, 2**20)


def reduced(compressor, updates, state, seed):
    return run(compressor, updates, state, seed=seed, how="vmap")


def one_row(tree):
    return jax.tree.map(lambda x: x[0], tree)


@every_scheme
@few
@given(shape=shapes, dtype=dtypes, density=densities, count=workers, seed=seeds)
def test_the_mean_is_the_average_of_what_was_sent(scheme, shape, dtype, density, count, seed):
    compressor, like = parse(SCHEMES[scheme](density)), {"x": jnp.zeros(shape, dtype)}
    outcome = reduced(compressor, random_updates(seed, like, count), first_state(compressor, like, count), seed)
    assert outcome.mean["x"].shape == outcome.sent["x"].shape == (count, *shape)
    assert outcome.mean["x"].dtype == outcome.sent["x"].dtype == dtype
    expected = jax.tree.map(lambda x: jnp.asarray(x, dtype), mean_over_workers(outcome.sent))
    assert_close(one_row(outcome.mean), expected)


@every_scheme
@few
@given(shape=shapes, dtype=dtypes, density=densities, count=workers, seed=seeds)
def test_nothing_is_lost_with_error_feedback(scheme, shape, dtype, density, count, seed):
    compressor, like = error_feedback(parse(SCHEMES[scheme](density))), {"x": jnp.zeros(shape, dtype)}
    state, came, went = first_state(compressor, like, count), np.zeros(shape), np.zeros(shape)
    for step in range(3):
        updates = random_updates(seed + step, like, count)
        outcome = reduced(compressor, updates, state, seed + step)
        state, came = outcome.state, came + mean_over_workers(updates)["x"]
        went = went + np.asarray(outcome.mean["x"][0], np.float64)
    left = mean_over_workers(jaxcompress.error_memory(state, updates))["x"]
    # What an unbiased scheme adds to, and the memory takes back, is several times the size of the updates.
    assert_close(jnp.asarray(went + left, jnp.float32), jnp.asarray(came, jnp.float32), scale=10.0)


def numbers_kept(scheme: str, size: int, density: float) -> int:
    """How many entries of an array are sent, by the docstrings."""
    kept = max(1, round(density * size)) if size else 0
    match scheme:
        case "block_top_k":
            rows = [min(32, size - start) for start in range(0, size, 32)]
            # The last row is filled with zeros, which are searched and never larger than an entry.
            return sum(min(row, max(1, round(density * min(32, size)))) for row in rows)
        case "block_max":
            return -(-size // min(max(2, round(1 / density)), size)) if size else 0
    return kept


@pytest.mark.parametrize("scheme", ["top_k", "block_top_k", "block_max", "random_k"])
@few
@given(shape=shapes, dtype=dtypes, density=densities, count=workers, seed=seeds)
def test_exactly_k_entries_are_kept_as_they_are(scheme, shape, dtype, density, count, seed):
    compressor, like = parse(SCHEMES[scheme](density)), {"x": jnp.zeros(shape, dtype)}
    updates = random_updates(seed, like, count)
    sent = np.asarray(reduced(compressor, updates, first_state(compressor, like, count), seed).sent["x"])
    kept = sent != 0
    assert np.all(kept.reshape(count, -1).sum(axis=1) == numbers_kept(scheme, math.prod(shape), density))
    np.testing.assert_array_equal(sent[kept], np.asarray(updates["x"])[kept])
