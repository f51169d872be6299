"""The mask of the largest entries against a stable sort of their bits, for every kind of float; the
indices of a mask against NumPy's `nonzero`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress.ops.radix_select import BLOCK, indices_of, largest_mask, largest_mask_of_each

chosen = jax.jit(largest_mask, static_argnums=1)
compacted = jax.jit(indices_of, static_argnums=1)
ROWS, LENGTH = 3, 40

# Where an order is easily got wrong: zeros of both signs, denormal numbers, neighbours, infinity,
# NaN of many bits.
AWKWARD = [
    0,
    1,
    2,
    0x007FFFFF,
    0x00800000,
    0x3F800000,
    0x3F800001,
    0x7F7FFFFF,
    0x7F800000,
    0x7F800001,
    0x7FFFFFFF,
]
ANY_FLOAT = st.one_of(st.sampled_from(AWKWARD), st.integers(0, 2**31 - 1)).flatmap(
    lambda bits: st.sampled_from([bits, bits | 2**31])
)


def numpy_mask(rows: np.ndarray, kept: int) -> np.ndarray:
    """A stable sort by magnitude, largest first, with NaN before infinity: of equal entries the
    first come first.
    """
    bits = np.minimum(rows.astype(np.float32).view(np.uint32) & 0x7FFFFFFF, 0x7F800001).astype(
        np.int64
    )
    mask = np.zeros(rows.shape, bool)
    np.put_along_axis(mask, np.argsort(-bits, axis=1, kind="stable")[:, :kept], True, axis=1)
    return mask


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_FLOAT, min_size=120, max_size=120), st.sampled_from([1, 7, 39, LENGTH]))
def test_any_floats_are_ordered_as_a_stable_sort_orders_them(bits, kept):
    rows = np.array(bits, np.uint32).view(np.float32).reshape(ROWS, LENGTH)
    np.testing.assert_array_equal(chosen(rows, kept), numpy_mask(rows, kept))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0]), min_size=120, max_size=120),
    st.integers(1, LENGTH),
)
def test_among_ties_the_first_are_taken(values, kept):
    rows = np.array(values, np.float32).reshape(ROWS, LENGTH)
    np.testing.assert_array_equal(chosen(rows, kept), numpy_mask(rows, kept))


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 70_001])
def test_whole_blocks_and_what_is_left_of_one(length):
    rows = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)
    for kept in {1, max(1, length // 100), length}:
        np.testing.assert_array_equal(chosen(rows, kept), numpy_mask(rows, kept))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_ordered_as_in_float32(dtype):
    rows = jnp.asarray(np.random.default_rng(1).standard_normal((2, 5000)), dtype)
    np.testing.assert_array_equal(
        chosen(rows, 50), numpy_mask(np.asarray(rows.astype(jnp.float32)), 50)
    )


def test_rows_end_at_different_passes():
    # The first row is done at once, the second needs every bit, the third every index.
    rows = np.stack(
        [2.0 ** np.arange(-60, 60), 1 + np.arange(120) * 2.0**-23, np.ones(120)]
    ).astype(np.float32)
    np.testing.assert_array_equal(chosen(rows, 60), numpy_mask(rows, 60))


def test_under_vmap_each_worker_has_its_own_threshold():
    rows = np.random.default_rng(2).standard_normal((4, 2, 3000)).astype(np.float32)
    rows[1] = 0
    masks = jax.jit(jax.vmap(functools.partial(largest_mask, kept=30)))(rows)
    np.testing.assert_array_equal(masks, [numpy_mask(worker, 30) for worker in rows])


def test_under_shard_map_each_worker_has_its_own_threshold():
    rows = np.random.default_rng(3).standard_normal((4, 3000)).astype(np.float32)
    sharded = jax.shard_map(
        functools.partial(largest_mask, kept=30),
        mesh=jaxcompress.data_mesh(4),
        in_specs=P("data"),
        out_specs=P("data"),
        check_vma=True,
    )
    np.testing.assert_array_equal(jax.jit(sharded)(rows), numpy_mask(rows, 30))


def test_no_pass_writes_an_array_as_long_as_the_rows():
    length = 2**20
    compiled = chosen.lower(jax.ShapeDtypeStruct((1, length), jnp.float32), 1000).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < length / 4


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.integers(0, 99), min_size=20, max_size=20),
    st.sets(st.integers(0, 99), min_size=20, max_size=20),
)
def test_any_places(first, second):
    mask = np.zeros((2, 100), bool)
    mask[0, list(first)] = mask[1, list(second)] = True
    np.testing.assert_array_equal(compacted(mask, 20), [sorted(first), sorted(second)])


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 1000])
def test_all_places(length):
    np.testing.assert_array_equal(
        compacted(np.ones((2, length), bool), length), [np.arange(length)] * 2
    )


@pytest.mark.parametrize(
    "true", [[0], [31], [32], [999], [0, 999], [31, 32], list(range(960, 1000)), [5, 500, 501]]
)
def test_words_without_a_place_and_full_words(true):
    mask = np.zeros((1, 1000), bool)
    mask[0, true] = True
    np.testing.assert_array_equal(compacted(mask, len(true)), [true])


def test_a_long_row():
    mask = np.random.default_rng(0).random((3, 100_003)) < 0.3
    mask[:, 40_000:60_000] = False
    kept = int(mask.sum(axis=1).min())
    mask &= np.cumsum(mask, axis=1) <= kept
    np.testing.assert_array_equal(compacted(mask, kept), np.nonzero(mask)[1].reshape(3, kept))


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.data())
def test_one_search_of_several_arrays_finds_what_a_search_of_each_finds(sizes, data):
    """With ties, and with zeros that fill the last row of 16 entries."""
    kept = [data.draw(st.integers(1, size)) for size in sizes]
    values = st.sampled_from([0.0, -1.0, 1.0, 2.0, np.inf, np.nan])
    arrays = [data.draw(st.lists(values, min_size=size, max_size=size)) for size in sizes]
    counts = [-(-size // 16) for size in sizes]
    filled = [
        np.pad(np.float32(x), (0, 16 * count - len(x)))
        for x, count in zip(arrays, counts, strict=True)
    ]
    expected = [numpy_mask(x[None], k)[0] for x, k in zip(filled, kept, strict=True)]
    search = jax.jit(lambda rows: largest_mask_of_each(rows, counts, kept))
    found = search(np.concatenate(filled).reshape(-1, 16))
    np.testing.assert_array_equal(found.ravel(), np.concatenate(expected))
