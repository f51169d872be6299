"""The law for schemes, arguments, shapes, dtypes and numbers of workers that nobody chose.

Every example is a program to compile, so there are few, and the same ones every time. ``-m slow``
draws more, and others each time.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from expressions_drawn import EXPRESSIONS, accepted, expressions
from helpers import assert_close, first_state, mean_over_workers, random_updates, run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from invariants import added, memory
from laws_programs import over_vmap

from benchmarks.common.expressions import public_schemes
from jaxcompress import momentum_correction, parse
from jaxcompress.base import walk

few = settings(max_examples=15, deadline=None, derandomize=True)
many = settings(max_examples=400, deadline=None)
shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
dtypes = st.sampled_from(["float32", "bfloat16", "float16"])
densities = st.floats(0.01, 1.0).map(lambda density: round(density, 3))
workers = st.integers(1, 4)
seeds = st.integers(0, 2**20)
drawn = {"text": expressions, "shape": shapes, "dtype": dtypes, "half": workers, "seed": seeds}


def test_every_public_scheme_can_be_drawn():
    assert set(EXPRESSIONS) == set(public_schemes())


@few
@given(**drawn)
def test_the_law(text, shape, dtype, half, seed):
    check_two_steps(text, shape, dtype, half, seed)


@pytest.mark.slow
@many
@given(**drawn)
def test_the_law_for_many_more(text, shape, dtype, half, seed):
    check_two_steps(text, shape, dtype, half, seed)


def check_two_steps(text, shape, dtype, half, seed):
    """mean + pmean(residual + memory') == pmean(updates + memory), and what comes with it."""
    assume(accepted(text))
    like = {"x": jnp.zeros(shape, dtype), "y": jnp.zeros((5,), dtype)}
    two_axes = "hierarchical" in text
    count = 2 * half if two_axes else half
    axes = {"node": 2, "gpu": half} if two_axes else {"data": count}
    compressor = parse(text)
    state = first_state(compressor, like, count)
    reduce = jax.jit(over_vmap(compressor, axes))
    for step in range(2):
        updates = random_updates(seed + step, like, count)
        mean, residual, bits, after = reduce(jax.random.key(seed + step), updates, state)
        for x, m, r in zip(*map(jax.tree.leaves, (updates, mean, residual)), strict=True):
            assert m.shape == r.shape == x.shape
            # As in the laws: what keeps a memory may return its residual in float32.
            wider = jnp.promote_types(x.dtype, jnp.float32) if compressor.has_memory else x.dtype
            assert r.dtype in (x.dtype, wider)
            assert np.all(np.asarray(m) == np.asarray(m[:1]))
        assert np.all(np.asarray(bits) == np.asarray(bits[0]))
        # A velocity is in what is sent after the first step.
        if step == 0 or not has_velocity(compressor):
            assert_law(mean, residual, updates, state, after)
        state = after


def assert_law(mean, residual, updates, before, after):
    update = mean_over_workers(updates)
    kept = added(mean_over_workers(residual), memory(after, update))
    found = added(jax.tree.map(lambda x: np.asarray(x[0], np.float64), mean), kept)
    expected = added(update, memory(before, update))
    leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves((mean, residual))]
    # Terms that cancel are rounded by their own size.
    scale = max([1.0, *(float(np.abs(x).max()) for x in leaves if x.size)])
    dtype = jax.tree.leaves(updates)[0].dtype
    assert_close(as_dtype(found, dtype), as_dtype(expected, dtype), scale)


def has_velocity(compressor) -> bool:
    made = [one.call.constructor for one in walk(compressor) if one.call]
    return momentum_correction in made


def as_dtype(tree, dtype):
    return jax.tree.map(lambda x: np.asarray(x, dtype), tree)


# From a density to an expression, for those that keep entries as they are.
SPARSIFIERS = {
    "top_k": lambda density: f"top_k({density})",
    "block_top_k": lambda density: f"block_top_k({density}, block=32)",
    "block_max": lambda density: f"block_max({max(2, round(1 / density))})",
    "random_k": lambda density: f"random_k({density})",
}


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


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    scheme=st.sampled_from(sorted(SPARSIFIERS)),
    shape=shapes,
    dtype=dtypes,
    density=densities,
    count=workers,
    seed=seeds,
)
def test_exactly_k_entries_are_kept_as_they_are(scheme, shape, dtype, density, count, seed):
    compressor, like = parse(SPARSIFIERS[scheme](density)), {"x": jnp.zeros(shape, dtype)}
    updates = random_updates(seed, like, count)
    state = first_state(compressor, like, count)
    outcome = run(compressor, updates, state, seed=seed, how="vmap")
    residual, x = np.asarray(outcome.residual["x"]), np.asarray(updates["x"])
    kept = residual == 0
    assert np.all(
        kept.reshape(count, -1).sum(axis=1) == numbers_kept(scheme, math.prod(shape), density)
    )
    np.testing.assert_array_equal(residual[~kept], x[~kept])
