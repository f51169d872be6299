"""Every compressor through every law. A new one is one line in `claims.ALL_COMPRESSORS`."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from books import Step
from claims import ALL_COMPRESSORS, made
from helpers import (
    WORKERS,
    Outcome,
    assert_close,
    assert_same_bits,
    awkward_tree,
    energy,
    first_state,
    mean_over_workers,
    random_updates,
    run,
    runner,
)

import jaxcompress
from benchmarks.schemes import public_schemes
from jaxcompress import PerWorker
from jaxcompress.ops.storage import read

# One process of a parallel run takes all laws of a compressor, so that each is compiled once.
every_compressor = pytest.mark.parametrize(
    "text", [pytest.param(text, marks=pytest.mark.xdist_group(text)) for text in ALL_COMPRESSORS]
)
# Whose mean is no average of what was sent, as their docstrings declare: what else they promise is in their own tests.
DECLARED_EXCEPTIONS = ["sign_majority()"]
STEPS = 6
# Of one step, whatever the number of arrays.
MOST_COLLECTIVES = 4
# Of the entries of a message, in how many collectives ever: 8 and 16 bits.
WIDTHS = 4


@functools.cache
def compressor_of(text: str) -> jaxcompress.Compressor:
    """One object per text, so that its compiled reduction is found again."""
    return made(text)


def with_memory(text: str) -> str:
    return text if compressor_of(text).remembers else f"error_feedback({text})"


@functools.cache
def steps(text: str, how: str = "shard_map") -> tuple[list, list[Outcome]]:
    """The updates and outcomes of a few steps of the awkward tree."""
    state, updates, outcomes = first_state(compressor_of(text), awkward_tree()), [], []
    for step in range(STEPS):
        updates.append(random_updates(step, awkward_tree()))
        outcomes.append(run(compressor_of(text), updates[-1], state, seed=step, how=how))
        state = outcomes[-1].state
    return updates, outcomes


def first_row(tree):
    return jax.tree.map(lambda x: x[0], tree)


def per_worker_parts(state) -> list:
    """What belongs to each worker, as it is read from where it is stored."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, PerWorker))
    return [x for node in nodes if isinstance(node, PerWorker) for x in jax.tree.leaves(read(node.value))]


def replicated_parts(state) -> list:
    """What is the same on all of them."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, PerWorker))
    return [x for x in nodes if not isinstance(x, PerWorker)]


def largest(tree) -> float:
    return max((float(np.abs(x).max(initial=0)) for x in jax.tree.leaves(tree)), default=0.0)


def memory(state, like):
    """The error memories in float64, all workers' rows, with zeros for arrays that have none."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64), jaxcompress.error_memory(state, like))


def test_every_scheme_of_the_door_is_among_them():
    schemes = set(public_schemes())
    tested = {name for name in schemes if any(f"{name}(" in text for text in [*ALL_COMPRESSORS, *DECLARED_EXCEPTIONS])}
    # One has two axes: tests/collectives/test_hierarchical.py; the other is a switch of top_k by another name.
    assert schemes - tested == {"hierarchical", "dgc_ladder"}


@every_compressor
def test_mean_is_the_average_of_what_was_sent(text):
    _, outcomes = steps(text)
    for outcome in outcomes:
        assert_close(first_row(outcome.mean), cast_like(mean_over_workers(outcome.sent), first_row(outcome.mean)))


def test_all_but_the_declared_exceptions_claim_the_law():
    assert all(compressor_of(text).conserves for text in ALL_COMPRESSORS)
    assert not any(compressor_of(text).conserves for text in DECLARED_EXCEPTIONS)


@every_compressor
def test_conservation_over_many_steps_with_error_feedback(text):
    if ALL_COMPRESSORS[text].books:
        pytest.skip("does not conserve updates: it has books of its own")
    updates, outcomes = steps(with_memory(text))
    like = random_updates(0, awkward_tree())
    total_in = add_up([mean_over_workers(one) for one in updates])
    total_out = add_up([as_float64(first_row(one.mean)) for one in outcomes])
    left = mean_over_workers(memory(outcomes[-1].state, like))
    found = cast_to(jnp.float32, jax.tree.map(operator.add, total_out, left))
    # What is stored in fewer bits is rounded in every step, by a part of the largest entry at most.
    rounding = STEPS * ALL_COMPRESSORS[text].rounds * max(largest(memory(one.state, like)) for one in outcomes)
    assert_close(found, cast_to(jnp.float32, total_in), STEPS, rounding)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, marks=pytest.mark.xdist_group(text))
        for text, claims in ALL_COMPRESSORS.items()
        if claims.books
    ],
)
def test_what_does_not_conserve_updates_keeps_books_of_its_own(text):
    updates, outcomes = steps(text)
    states = [first_state(compressor_of(text), awkward_tree()), *(one.state for one in outcomes)]
    for number, (update, outcome) in enumerate(zip(updates, outcomes, strict=True)):
        mean = as_float64(first_row(outcome.mean))
        step = Step(number, mean_over_workers(update), mean, states[number], states[number + 1])
        rounding = ALL_COMPRESSORS[text].rounds * largest(memory(outcome.state, update))
        for left, right in ALL_COMPRESSORS[text].books(step):
            assert_close(cast_to(jnp.float32, left), cast_to(jnp.float32, right), rounding=rounding)


@every_compressor
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_of_nothing_finite_keeps_all_of_the_memory(text, bad):
    """On which `transaction` relies: also where the inner one says itself that nothing is left."""
    if ALL_COMPRESSORS[text].books:
        pytest.skip("does not conserve updates: its own tests have such a step")
    updates, outcomes = steps(with_memory(text))
    before = memory(outcomes[-1].state, updates[0])
    spoilt = run(compressor_of(with_memory(text)), jax.tree.map(lambda x: x + bad, updates[0]), outcomes[-1].state)
    rounding = ALL_COMPRESSORS[text].rounds * largest(before)
    after = memory(spoilt.state, updates[0])
    assert_close(cast_to(jnp.float32, after), cast_to(jnp.float32, before), scale=0, rounding=rounding)


@pytest.mark.parametrize("size", [300, 4096, 65_553])
@pytest.mark.parametrize(
    "text",
    [
        *("qsgd(4)", "qsgd(4, norm='l2')", "nuqsgd(4)", "terngrad()", "terngrad(clip=None)", "natural()", "sign()"),
        *("int8()", "int4()", "int2()", "float8()", "float8('e5m2')", "cast('bfloat16')"),
    ],
)
def test_what_sends_every_entry_hides_no_nan(text, size):
    """Else a step that is not finite would be averaged as if it were."""
    codec, x = compressor_of(text).codec, jnp.asarray(np.random.default_rng(0).standard_normal(size), jnp.float32)
    sent = jax.jit(lambda x: codec.decode(codec.encode(jax.random.key(0), x), x))
    assert jnp.all(jnp.isfinite(sent(x)))
    for bad in (jnp.nan, jnp.inf):
        assert not jnp.isfinite(sent(x.at[5].set(bad))[5])


@every_compressor
def test_contraction_with_the_delta_of_the_docstring(text):
    delta = ALL_COMPRESSORS[text].contraction
    if delta is None:
        pytest.skip("claims no contraction of its own")
    updates, outcomes = steps(text)
    for x, sent in zip(jax.tree.leaves(updates[0]), jax.tree.leaves(outcomes[0].sent), strict=True):
        for worker in range(WORKERS):
            if x[worker].size:
                rest = np.asarray(x[worker], np.float64) - np.asarray(sent[worker], np.float64)
                # float32 products leave a rest of a few eps where the exact one is zero, and bfloat16 rounds to 2^-9.
                rounding = 2.0**-16 if x.dtype == jnp.bfloat16 else 1e-9
                assert energy(rest) <= (1 - delta(np.asarray(x[worker], np.float64)) + rounding) * energy(x[worker])


@every_compressor
def test_unbiased_within_four_standard_errors(text):
    claims, codec = ALL_COMPRESSORS[text], compressor_of(text).codec
    if not claims.unbiased:
        pytest.skip("claims no unbiasedness")
    draws = 4000
    x = jnp.asarray(np.random.default_rng(0).standard_normal(64), jnp.float32)
    keys = jax.random.split(jax.random.key(0), draws)
    sent = np.asarray(jax.jit(jax.vmap(lambda key: codec.decode(codec.encode(key, x), x)))(keys), np.float64)
    error = np.abs(sent.mean(axis=0) - np.asarray(x, np.float64))
    assert np.all(error <= 4 * sent.std(axis=0) / np.sqrt(draws) + 1e-6 * np.abs(np.asarray(x)))
    if claims.variance:
        assert energy(sent - np.asarray(x, np.float64)) / draws <= claims.variance(x) * energy(x)


@every_compressor
def test_identity_at_the_no_compression_limit(text):
    limit = ALL_COMPRESSORS[text].limit
    if limit is None:
        pytest.skip("has no limit at which it compresses nothing")
    updates = random_updates(3, awkward_tree())
    outcome = run(compressor_of(limit), updates, first_state(compressor_of(limit), awkward_tree()))
    expected = cast_like(mean_over_workers(updates), first_row(outcome.mean))
    # 16 bits are "enough" up to half a level: max|x| / (2^15 - 1), and entries of a normal distribution stay below 6.
    assert_close(first_row(outcome.mean), expected, scale=20 if "qsgd" in limit else 1)


@every_compressor
def test_zeros_in_zeros_out(text):
    compressor = compressor_of(text)
    zeros = jax.tree.map(jnp.zeros_like, random_updates(0, awkward_tree()))
    outcome = run(compressor, zeros, first_state(compressor, awkward_tree()))
    assert_close(outcome.mean, jax.tree.map(jnp.zeros_like, outcome.mean), scale=0)
    assert_close(outcome.sent, jax.tree.map(jnp.zeros_like, outcome.sent), scale=0)
    # And it recovers: the next updates get through.
    after = run(compressor, random_updates(1, awkward_tree()), outcome.state)
    assert all(
        np.all(np.isfinite(np.asarray(x, np.float32)))
        for x in jax.tree.leaves((after.mean, after.state))
        if is_float(x)
    )
    assert energy(after.mean["matrix"]) > 0


@every_compressor
def test_shapes_and_tree_are_kept(text):
    updates, outcomes = steps(text)
    for part in (outcomes[0].mean, outcomes[0].sent):
        assert jax.tree.structure(part) == jax.tree.structure(updates[0])
        assert [x.shape for x in jax.tree.leaves(part)] == [x.shape for x in jax.tree.leaves(updates[0])]
    dtypes = [x.dtype for x in jax.tree.leaves(outcomes[0].mean)]
    assert dtypes == [x.dtype for x in jax.tree.leaves(outcomes[0].sent)]


@every_compressor
@pytest.mark.parametrize("rate", [0.0, 2.0])
def test_compress_keeps_shapes_and_dtypes_and_tree(text, rate):
    transformation = jaxcompress.compress(compressor_of(text), min_compression_rate=rate)
    updates = random_updates(0, awkward_tree())
    state = transformation.init(awkward_tree())

    def one_worker(x):
        return transformation.update(x, state, awkward_tree())[0]

    mean = jax.eval_shape(jax.vmap(one_worker, axis_name="data"), updates)
    assert jax.tree.structure(mean) == jax.tree.structure(updates)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(mean)] == [(x.shape, x.dtype) for x in jax.tree.leaves(updates)]


@every_compressor
def test_empty_and_masked_trees_pass(text):
    for tree in ({}, {"masked": optax.MaskedNode(), "none": None}):

        def one_worker(_, tree=tree):
            state = compressor_of(text).init(jax.random.key(0), tree)
            return compressor_of(text).reduce(jax.random.key(0), tree, state, "data")[0]

        reduced = jax.eval_shape(jax.vmap(one_worker, axis_name="data"), jnp.zeros(2))
        assert jax.tree.structure(reduced.mean) == jax.tree.structure(tree)


@every_compressor
def test_bits_equal_what_the_jaxpr_moves(text):
    updates, outcomes = steps(text)
    compressor, state = compressor_of(text), first_state(compressor_of(text), awkward_tree())
    step = runner(compressor, WORKERS, "shard_map")
    jaxpr = step.trace(jax.random.key(0), updates[0], state).jaxpr
    for outcome, branch in ((outcomes[0], 0), (outcomes[-1], -1)):
        counted = jaxcompress.traffic_of_jaxpr(jaxpr, branch=lambda branches, branch=branch: branches[branch])
        assert 8 * counted.payload_bytes == int(outcome.bits[0])


@every_compressor
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_bits_equal_what_the_compiled_program_moves(text, workers):
    # float32 throughout: XLA widens a bfloat16 all-reduce on CPUs, which is its business and not the compressor's.
    params = {name: x for name, x in awkward_tree().items() if name in ("vector", "kernel")}
    compressor, updates = compressor_of(text), random_updates(0, params, workers)
    step, state = runner(compressor, workers, "shard_map"), first_state(compressor, params, workers)
    traced = step.trace(jax.random.key(0), updates, state)
    asked = jaxcompress.traffic_of_jaxpr(traced.jaxpr, branch=lambda branches: branches[-1])
    program = traced.lower().compile().as_text()
    moved = jaxcompress.traffic_of_hlo(program, branch=lambda branches: branches[-1])
    assert moved.payload_bytes == asked.payload_bytes and moved.wire_bytes == asked.wire_bytes
    assert len(moved.collectives) <= MOST_COLLECTIVES


@every_compressor
def test_message_bits_are_known_from_shapes_alone(text):
    _, outcomes = steps(text)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), awkward_tree())
    known = sum(jax.tree.leaves(compressor_of(text).message_bits(shapes)))
    # The larger of two, since one that sends two messages in turn counts with the larger.
    sent = max(int(outcome.bits[0]) for outcome in outcomes[-2:])
    # A message fills whole words, once for each width of its entries.
    widths = 32 * WIDTHS
    assert known <= sent and (ALL_COMPRESSORS[text].varies or sent < known + widths)


@every_compressor
def test_same_key_same_result(text):
    updates, _ = steps(text)
    compressor = compressor_of(text)
    state = first_state(compressor, awkward_tree())
    once, again = (run(compressor, updates[0], state, seed=7) for _ in range(2))
    assert_same_bits(again, once)
    other = run(compressor, updates[0], state, seed=8)
    differs = any(
        np.any(np.asarray(a) != np.asarray(b))
        for a, b in zip(*map(jax.tree.leaves, (once.sent, other.sent)), strict=True)
    )
    assert differs == ALL_COMPRESSORS[text].random


@every_compressor
def test_state_saved_and_restored_gives_the_same_next_step(text):
    compressor = compressor_of(with_memory(text))
    updates, outcomes = steps(with_memory(text))
    saved = [to_numpy(x) for x in jax.tree.leaves(outcomes[2].state)]
    blank = first_state(compressor, awkward_tree())
    restored = jax.tree.unflatten(jax.tree.structure(blank), [jnp.asarray(x) for x in saved])
    assert_same_bits(run(compressor, updates[3], restored, seed=3), outcomes[3])


@every_compressor
def test_shard_map_equals_vmap(text):
    for by_shard_map, by_vmap in zip(steps(text)[1][:2], steps(text, "vmap")[1][:2], strict=True):
        for part in ("mean", "sent", "state"):
            assert_close(getattr(by_vmap, part), getattr(by_shard_map, part))
        assert np.array_equal(by_vmap.bits, by_shard_map.bits)


@every_compressor
def test_replicas_are_equal_to_the_last_bit(text):
    _, outcomes = steps(with_memory(text))
    for x in jax.tree.leaves(outcomes[-1].mean):
        rows = {np.asarray(row).tobytes() for row in x}
        assert len(rows) <= 1 or x.size == 0
    for x in replicated_parts(outcomes[-1].state):
        assert len({to_numpy(shard.data).tobytes() for shard in x.addressable_shards}) == 1


@every_compressor
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_a_change_of_the_number_of_workers_keeps_the_mean_of_the_memory(text, workers):
    _, outcomes = steps(with_memory(text))
    before = outcomes[-1].state
    after = jaxcompress.reshard_workers(before, workers)
    parts = list(zip(per_worker_parts(before), per_worker_parts(after), strict=True))
    assert parts
    for old, new in parts:
        assert new.shape == (workers, *old.shape[1:])
        rounding = ALL_COMPRESSORS[text].rounds * largest(old)
        assert_close(jnp.mean(new, axis=0), jnp.mean(old, axis=0), rounding=rounding)


def to_numpy(x) -> np.ndarray:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


def is_float(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def as_float64(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def cast_to(dtype, tree):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


def cast_like(tree, like):
    return jax.tree.map(lambda x, one: jnp.asarray(x, one.dtype), tree, like)


def add_up(trees):
    return functools.reduce(lambda a, b: jax.tree.map(operator.add, a, b), trees)
