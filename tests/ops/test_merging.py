"""Several arrays as one: every entry once, in whole rows, and back; the results are the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, mean_over_workers, random_updates, slow, slow_unless
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxcompress
from jaxcompress import block_max, one_phase, two_phase
from jaxcompress.ops import merging
from jaxcompress.ops.merging import (
    JOINED_ROW,
    Rows,
    disjoin,
    join,
    joinable,
    merge,
    together,
    unmerge,
)

# Long and short arrays, with and without a row that is not full, of two dtypes.
TREE = {
    "long": jnp.zeros((40, 33)),
    "longer": jnp.zeros(5000),
    "rows": jnp.zeros((64, 64)),
    "short": jnp.zeros(7),
    "alike": jnp.zeros(7),
    "half": jnp.zeros((50, 30), jnp.bfloat16),
    "half rows": jnp.zeros((16, 64), jnp.bfloat16),
    "empty": jnp.zeros((0, 3)),
}
SHAPES = st.lists(
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    max_size=6,
)


def arrays_of(shapes, dtypes=("float32",)):
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.standard_normal(shape), dtypes[i % len(dtypes)])
        for i, shape in enumerate(shapes)
    ]


@settings(max_examples=20, deadline=None)
@given(SHAPES, st.builds(Rows, st.none() | st.integers(1, 40), st.booleans(), st.booleans()))
def test_unmerge_undoes_merge(shapes, rows):
    arrays = arrays_of(shapes, ("float32", "bfloat16"))
    again = jax.jit(lambda x: unmerge(merge(x, rows), x, rows))(arrays)
    for x, y in zip(arrays, again, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_array_equal(x, y)


def test_whole_rows_are_in_front_and_what_is_left_over_behind():
    arrays = [jnp.arange(5.0), 10 + jnp.arange(4.0), 20 + jnp.arange(2.0), 30 + jnp.arange(5.0)]
    merged, ends, short = merge(arrays, Rows(4))
    np.testing.assert_array_equal(merged, [[0, 1, 2, 3, 10, 11, 12, 13, 30, 31, 32, 33]])
    np.testing.assert_array_equal(ends, [[4], [34]])
    np.testing.assert_array_equal(short, [[20, 21]])


def test_filled_rows_leave_only_short_arrays_over():
    arrays = [jnp.arange(5.0), 10 + jnp.arange(4.0), 20 + jnp.arange(2.0)]
    merged, short = merge(arrays, Rows(4, filled=True))
    np.testing.assert_array_equal(merged, [[0, 1, 2, 3, 4, 0, 0, 0, 10, 11, 12, 13]])
    np.testing.assert_array_equal(short, [[20, 21]])


def test_each_dtype_has_an_array_of_its_own():
    arrays = arrays_of([(8,), (8,), (8,)], ("float32", "bfloat16"))
    assert [(x.shape, str(x.dtype)) for x in merge(arrays, Rows(4))] == [
        ((1, 16), "float32"),
        ((1, 8), "bfloat16"),
    ]


def test_without_rows_arrays_of_one_shape_are_stacked():
    stacks = merge(arrays_of([(2, 3), (6,), (2, 3)]), Rows(None))
    assert [x.shape for x in stacks] == [(2, 2, 3), (1, 6)]


def test_arrays_that_stay_apart_are_stacked_by_their_number_of_rows():
    arrays = arrays_of([(5,), (2, 3), (9,), (8,), (2,)])
    stacks = merge(arrays, Rows(4, filled=True, apart=True))
    assert [x.shape for x in stacks] == [(3, 8), (1, 12), (1, 2)]
    np.testing.assert_array_equal(stacks[0][1], [*arrays[1].ravel(), 0, 0])


def test_no_row_of_arrays_is_longer_than_32_bits_count():
    arrays = [jax.ShapeDtypeStruct((2**30,), jnp.float32)] * 3
    stacks = jax.eval_shape(lambda x: merge(x, Rows(1024)), arrays)
    assert [x.shape for x in stacks] == [(1, 2**30), (1, 2**30), (1, 2**30)]


@given(st.lists(st.sampled_from([(), (0,), (3,), (1024,), (700, 3), (1025,)]), min_size=1))
@settings(max_examples=8, deadline=None)
def test_joined_arrays_come_apart_again(shapes):
    arrays = arrays_of(shapes)
    joined = join(arrays)
    assert joined.shape == (sum(-(-x.size // JOINED_ROW) * JOINED_ROW for x in arrays),)
    for x, again in zip(arrays, disjoin(joined, arrays), strict=True):
        np.testing.assert_array_equal(x, again)


def test_arrays_of_two_dtypes_or_of_nothing_are_not_joined():
    assert joinable(arrays_of([(3,), (4,)]))
    assert not joinable(arrays_of([(3,), (4,)], ("float32", "bfloat16")))
    assert not joinable(arrays_of([(0,), (0,)]))


def test_one_array_is_not_joined_nor_more_entries_than_32_bits_count():
    assert not joinable(arrays_of([(3,)]))
    long, short = (jax.ShapeDtypeStruct((n,), jnp.float32) for n in (2**31 - 1, 3))
    found = []
    jax.eval_shape(lambda arrays: found.append(joinable(arrays)), [long, short])
    assert found == [False]


def scaled(updates, power):
    """Each array 16 to this power times larger than the one before: no scale suits two of them."""
    leaves, treedef = jax.tree.flatten(updates)
    return treedef.unflatten([x * 16.0 ** (power * i) for i, x in enumerate(leaves)])


def by_vmap(compressor, updates):
    """One reduction, compiled anew: the fixture changes the program, and no key of a cache."""

    def reduce(x):
        return compressor.reduce(jax.random.key(0), x, (), "data")[0]

    return jax.jit(jax.vmap(reduce, axis_name="data"))(updates)


@pytest.mark.parametrize(
    "text",
    [
        "top_k(0.1)",
        "one_phase(block_top_k(0.05, block=256, inner=sign()))",
        "two_phase(int4(group=64))",
        *slow(
            "one_phase(block_top_k(0.05, block=256, inner=cast('bfloat16')))",
            "one_phase(block_top_k(0.1, block=64, inner=block_top_k(0.5, block=64)))",
            "one_phase(block_max(100))",
            "two_phase(cast('bfloat16'))",
            "one_phase(block_max(100, inner=int8()))",
            "one_phase(int8(group=128))",
            "one_phase(sign(64))",
            "one_phase(cast('bfloat16'))",
            "two_phase(block_top_k(0.02, block=64))",
        ),
    ],
)
def test_merged_arrays_give_the_same_mean_and_residual(text, monkeypatch, request):
    compressor = jaxcompress.parse(text)
    updates = scaled(random_updates(4, TREE), -1)

    def up_to(entries):
        monkeypatch.setattr(merging, "SHORT", entries)
        return by_vmap(compressor, updates)

    expected, of_cpus = up_to(-1), up_to(1400)
    request.getfixturevalue("on_gpus")
    for each in (of_cpus, by_vmap(compressor, updates)):
        assert_close(scaled(each.mean, 1), scaled(expected.mean, 1))
        np.testing.assert_array_equal(each.bits, expected.bits)
        residuals = [scaled(one.residual, 1) for one in (each, expected)]
        if text.startswith("two_phase"):
            # In another order arrays have other owners, who keep what the second phase drops.
            float32 = [{k: x for k, x in one.items() if "half" not in k} for one in residuals]
            residuals = map(mean_over_workers, float32)
        assert_close(*residuals)


@pytest.mark.parametrize(
    "text",
    [
        "top_k(0.02, inner=cast('bfloat16'))",
        "top_k(0.02, inner=sign())",
        *slow("top_k(0.02)", "top_k(0.02, inner=int8())", "top_k(0.02, inner=top_k(0.5))"),
    ],
)
def test_arrays_joined_on_gpus_give_the_same_mean_and_residual(text, request):
    compressor = jaxcompress.parse(text)
    updates = random_updates(4, {key: x for key, x in TREE.items() if "half" not in key})
    updates = scaled(updates, -1)
    expected = by_vmap(compressor, updates)
    request.getfixturevalue("on_gpus")
    found = by_vmap(compressor, updates)
    # The same entries, so the same to the bit.
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.usefixtures("on_gpus")
def test_joined_arrays_are_searched_once():
    updates = random_updates(4, {key: x for key, x in TREE.items() if "half" not in key})
    program = str(jax.make_jaxpr(lambda x: by_vmap(jaxcompress.top_k(0.02), x))(updates))
    # By magnitude, and among ties by position.
    assert program.count("while[") == 2
    assert "top_k[" not in program


@pytest.mark.usefixtures("on_gpus")
@pytest.mark.parametrize(
    ("phases", "text"),
    slow_unless(
        [
            (two_phase, "qsgd(4)"),
            (one_phase, "terngrad()"),
            (two_phase, "natural()"),
            (one_phase, "block_top_k(0.1, inner=qsgd(8))"),
        ],
        (one_phase, two_phase),
        ("qsgd(4)", "terngrad()", "natural()", "block_top_k(0.1, inner=qsgd(8))"),
    ),
)
def test_the_law_holds_for_merged_arrays_rounded_at_random(phases, text):
    compressor = phases(jaxcompress.parse(text))
    updates = random_updates(5, {key: x for key, x in TREE.items() if "half" not in key})
    found = by_vmap(compressor, updates)
    kept = jax.tree.map(lambda mean, rest: mean[0] + rest.mean(0), found.mean, found.residual)
    assert_close(kept, jax.tree.map(lambda x: x.mean(0), updates))


@pytest.mark.parametrize("phases", [one_phase, two_phase])
def test_a_program_does_not_grow_with_the_arrays(phases):
    more = TREE | {"more": jnp.zeros((70, 3)), "seven": jnp.zeros(7), "end": jnp.zeros(1000)}

    def operations(tree):
        updates = random_updates(6, tree, 2)
        program = jax.make_jaxpr(lambda x: by_vmap(phases(block_max(64)), x))(updates)
        return str(program).count(" shift_left ")

    assert 0 < operations(TREE) == operations(more)


def test_long_arrays_stay_as_they_are_on_cpus(monkeypatch):
    monkeypatch.setattr(merging, "SHORT", 8)
    arrays = arrays_of([(5,), (3, 4), (8,), (3, 4)])
    assert [x.shape for x in merge(arrays, Rows(4))] == [(1, 12), (1, 1), (1, 3, 4), (1, 3, 4)]
    assert together(arrays) == [[0, 2], [1], [3]]
