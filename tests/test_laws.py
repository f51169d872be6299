"""Every compressor through every law. A new one is one line in `claims.ALL_COMPRESSORS`.

Four programs serve all laws of a compressor: on four devices, on two nodes of four, a long run by
`vmap`, and a step on large arrays. See `laws_programs`. In the fast tests every compressor runs on
four devices, and one of each way to travel in the other programs; on large arrays also one of each
way to encode.
"""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from claims import ALL_COMPRESSORS
from helpers import (
    assert_close,
    assert_same_bits,
    energy,
    first_state,
    largest,
    mean_over_workers,
    random_updates,
    slow,
)
from invariants import Step, added, memory, own_parts, worker_memories
from laws_programs import (
    COMPARED,
    LARGE,
    LIMIT,
    LONG_RUN,
    MANY,
    MIXED,
    SMALL,
    WORKERS,
    Result,
    axes_of,
    compressor_of,
    large_step,
    large_workers,
    long_run,
    on_devices,
    on_two_axes,
    over_vmap,
    run_large,
    run_on,
    simulates_memory,
    steps,
)

import jaxcompress
from benchmarks.common.expressions import public_schemes
from jaxcompress import two_phase
from jaxcompress.base import walk
from jaxcompress.distributed.placement import as_numpy
from jaxcompress.distributed.specs import is_per_worker
from jaxcompress.ops.serialization import LANES
from jaxcompress.profiling.monitor import Energies

# One of each way to communicate.
TRAVEL = {
    "dense()",
    "top_k(0.1)",
    "two_phase(qsgd(8, group=64))",
    "power_sgd(2)",
    "acp_sgd(2)",
    "random_k(0.1)",
    "shared_top_k(0.1)",
    "int_sum(8)",
    "arc_top_k(0.1, block=16, columns=2)",
    "sign_majority()",
    "switch(warmup(1), dense(), top_k(0.1))",
    "error_feedback(top_k(0.1))",
    "ef21(top_k(0.1))",
}
# And one of each way to encode: the others have the same code with other arguments, or around it.
CODE_PATHS = TRAVEL | {
    "block_top_k(0.05, block=64)",
    "block_max(64, inner=qsgd(8))",
    "sign()",
    "two_phase(sign(32))",
    "qsgd(4)",
    "top_k(0.1, inner=qsgd(8))",
    "partition({'matrix': power_sgd(2), 'rest': top_k(0.1)}, by_shape())",
    "hierarchical(dense(), top_k(0.1))",
    "threshold(0.5, capacity=0.2)",
    "sampled_threshold(0.1)",
    "global_top_k(0.1)",
    "bernoulli(0.1)",
    "importance_sampled(0.1, block=64)",
    "block_sparse(0.1, block=16)",
    "nuqsgd(4)",
    "terngrad()",
    "int8()",
    "float8()",
    "rotated(qsgd(4), block=64)",
    "lloyd_max(3, group=64)",
    "error_feedback(top_k(0.1), dtype='int8')",
}
# These choose among the others, by array or by step, or remember around one.
AROUND = {
    "error_feedback(top_k(0.1))",
    "switch(warmup(1), dense(), top_k(0.1))",
    "partition({'matrix': power_sgd(2), 'rest': top_k(0.1)}, by_shape())",
}


def of(texts: Iterable[str], fast: Iterable[str] = ALL_COMPRESSORS) -> pytest.MarkDecorator:
    """A law of these compressors; those that are not `fast` are among the slow tests.

    The laws of a compressor follow one another in one process, since they are of one group.
    """
    return pytest.mark.parametrize(
        "text",
        [
            pytest.param(
                text,
                marks=[
                    pytest.mark.xdist_group(text),
                    *([] if text in fast else [pytest.mark.slow]),
                ],
            )
            for text in texts
        ],
    )


# The steps on devices: a program of each compressor.
every_compressor = of(ALL_COMPRESSORS)
# Each further program takes seconds to compile. What it adds depends on how a compressor travels,
# or on that and how it encodes; so one of each is fast, and the law of the steps holds for all.
on_a_second_mesh = of(ALL_COMPRESSORS, fast=TRAVEL - AROUND)
in_large_arrays = of(ALL_COMPRESSORS, fast=CODE_PATHS - AROUND)
in_a_long_run = of(
    filter(simulates_memory, ALL_COMPRESSORS),
    fast=TRAVEL - AROUND | {"sign()", "block_sparse(0.1, block=16)"},  # these leave the most
)
# Of one step, whatever the number of arrays.
MOST_COLLECTIVES = 4
# Of the entries of a message, in how many collectives ever: 8 and 16 bits. A message fills whole
# words, once for each width.
WIDTHS = 4


def test_every_public_scheme_is_among_them():
    schemes = public_schemes()
    assert len(schemes) > 40
    outermost = {compressor_of(text).call.constructor.__name__ for text in ALL_COMPRESSORS}
    assert set(schemes) <= outermost
    assert ALL_COMPRESSORS.keys() >= CODE_PATHS


@pytest.mark.xdist_group("group")
def test_the_laws_of_a_compressor_share_a_process(request):
    """Some versions of pytest and pytest-xdist lose the groups without a word."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@group")


# The law.


@every_compressor
def test_mean_and_residual_are_the_mean_of_the_updates(text):
    for number, result in enumerate(steps(text)):
        assert_law(text, number, result)


@on_a_second_mesh
def test_the_law_on_a_mesh_of_two_axes(text):
    if axes_of(text, MANY) != {"data": MANY}:
        pytest.skip("runs on two axes in all laws")
    program, updates = on_two_axes(text), random_updates(1, SMALL, MANY)
    result = run_on(program, 1, updates, program.state)
    assert_law(text, 0, result)
    assert_equal_on_all_workers(result)


@in_large_arrays
def test_the_law_of_large_arrays(text):
    assert_law(text, 0, large_step(text))


@in_a_long_run
def test_nothing_is_lost_in_a_long_run(text):
    """All means, and what is remembered in the end, are all updates: with error feedback simulated
    from the residual. A memory of a compressor's own, or none, has a law per step.
    """
    seen = long_run(text)
    came = jax.tree.map(lambda x: x.mean(1, np.float64).sum(0), seen.updates)
    went = jax.tree.map(lambda x: x[:, 0].sum(0, np.float64), seen.mean)
    left = mean_over_workers(seen.memory)
    assert_close(as_float32(added(went, left)), as_float32(came), LONG_RUN)


def assert_law(text: str, number: int, result: Result) -> None:
    """mean + pmean(residual + memory') == entering, where all of it is finite."""
    step = as_step(number, result)
    kept = added(mean_over_workers(result.residual), memory(result.after, step.update))
    found, expected = added(step.mean, kept), ALL_COMPRESSORS[text].entering(step)
    stored = largest(worker_memories(result.after, step.update))
    # Terms that cancel are rounded by their own size.
    scale = max(1.0, largest((result.mean, result.residual)))
    rounding = ALL_COMPRESSORS[text].rounds * stored
    assert_close(like(result.mean, found), like(result.mean, expected), scale, rounding)


def as_step(number: int, result: Result) -> Step:
    update, mean = mean_over_workers(result.updates), as_float64(first_row(result.mean))
    return Step(number, update, mean, result.before, result.after)


@of([text for text, claims in ALL_COMPRESSORS.items() if claims.invariant])
def test_invariants_of_the_state(text):
    for number, result in enumerate(steps(text)):
        for left, right in ALL_COMPRESSORS[text].invariant(as_step(number, result)):
            assert_close(as_float32(left), as_float32(right))


# What is not finite.


@every_compressor
def test_a_step_of_nothing_finite_keeps_all_of_the_memory(text):
    """On which `apply_if_all_finite` relies: no residual is finite, so no error memory changes."""
    last = steps(text)[-1]
    for bad in (np.nan, np.inf):
        updates = jax.tree.map(lambda x, bad=bad: np.full_like(x, bad), last.updates)
        result = run_on(on_devices(text), 1, updates, last.after)
        before, after = (worker_memories(x, first_row(updates)) for x in (last.after, result.after))
        if largest(before):
            assert_close(
                as_float32(after),
                as_float32(before),
                scale=0,
                rounding=ALL_COMPRESSORS[text].rounds * largest(before),
            )
        else:
            residual = jax.tree.leaves(as_float64(result.residual))
            assert not any(np.any(np.isfinite(x)) for x in residual)


@every_compressor
def test_what_is_not_finite_is_seen_and_does_not_stay(text):
    last = steps(text)[-1]
    updates = jax.tree.map(np.array, last.updates)
    for x in jax.tree.leaves(updates):
        rows = x.reshape(WORKERS, -1)
        rows[1, rows.shape[1] // 2 :][:1] = np.nan
    assert_seen(text, run_on(on_devices(text), 1, updates, last.after))


@in_large_arrays
def test_what_is_not_finite_is_seen_in_large_arrays_and_does_not_stay(text):
    """In arrays so large that a maximum once lost a NaN."""
    updates = jax.tree.map(np.array, random_updates(5, LARGE, large_workers(text)))
    for name, x in updates.items():
        for i, bad in enumerate((np.nan, np.inf, -np.inf)):
            x[1].flat[[5000 * (i + 1) + 5, x[1].size - 1 - i * 40_000]] = bad
        assert np.sum(~np.isfinite(x)) == 6, name
    assert_seen(text, run_large(text, updates))


def assert_seen(text: str, result: Result) -> None:
    """What is not finite among the updates is neither in the mean nor in the state."""
    parts = (result.updates, result.residual, result.mean)
    for x, residual, mean in zip(*map(jax.tree.leaves, map(as_float64, parts)), strict=True):
        bad = ~np.isfinite(x)
        if not compressor_of(text).has_memory:
            assert not np.any(np.isfinite(residual[bad]))
        if not ALL_COMPRESSORS[text].hides_nan:
            assert not np.any(np.isfinite(mean[:, bad.any(axis=0)]))
    assert is_finite(result.after)


def is_finite(state) -> bool:
    """Of all numbers but the sums of squares of a `monitor`, which report what happened."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, Energies))
    return all(
        np.all(np.isfinite(np.asarray(x, np.float32)))
        for x in nodes
        if not isinstance(x, Energies) and is_float(x)
    )


# Claims of the docstrings.

# Of the energy of an array, what rounding leaves of it: eps squared, with room.
ROUNDED = {"float32": 1e-9, "bfloat16": 2.0**-16}


CONTRACTING = [text for text, claims in ALL_COMPRESSORS.items() if claims.contraction]


@of(CONTRACTING)
def test_contraction_with_the_delta_of_the_docstring(text):
    assert_contracts(text, steps(text)[0])


@of(CONTRACTING, fast=CODE_PATHS)
def test_contraction_of_large_arrays(text):
    assert_contracts(text, large_step(text))


def assert_contracts(text: str, result: Result) -> None:
    delta = ALL_COMPRESSORS[text].contraction
    for x, residual in zip(*map(jax.tree.leaves, (result.updates, result.residual)), strict=True):
        for worker in range(len(x)):
            if x[worker].size:
                # float32 products leave a residual of a few eps where the exact one is zero, and
                # every entry of the residual is rounded to its dtype.
                rounded = (1 + float(jnp.finfo(x.dtype).eps) / 2) ** 2
                left = 1 - delta(np.asarray(x[worker], np.float64)) + ROUNDED[x.dtype.name]
                assert energy(residual[worker]) <= rounded * left * energy(x[worker])


@of(
    [text for text, claims in ALL_COMPRESSORS.items() if claims.unbiased],
    fast=CODE_PATHS | {"natural()", "terngrad(clip=None, group=32)", "int4(stochastic=True)"},
)
def test_unbiased_within_four_standard_errors(text):
    claims = ALL_COMPRESSORS[text]
    draws, workers, compressor = 4000, 2, compressor_of(text)
    updates = random_updates(0, jnp.zeros(64), workers)
    state = first_state(compressor, jnp.zeros(64), workers)
    reduce = over_vmap(compressor, axes_of(text, workers))
    keys = jax.random.split(jax.random.key(0), draws)
    many = jax.jit(jax.vmap(lambda key: reduce(key, updates, state)[:2]))
    mean, residual = (np.asarray(x, np.float64) for x in many(keys))
    x, expected = np.asarray(updates, np.float64), mean_over_workers(updates)
    error = np.abs(mean[:, 0].mean(axis=0) - expected)
    assert np.all(error <= 4 * mean[:, 0].std(axis=0) / np.sqrt(draws) + 1e-6 * np.abs(expected))
    for worker in range(workers if claims.variance else 0):
        omega = claims.variance(x[worker])
        assert energy(residual[:, worker]) / draws <= omega * energy(x[worker])


def test_every_compressor_has_a_no_compression_limit_of_its_own_or_a_reason():
    for text, claims in ALL_COMPRESSORS.items():
        assert bool(claims.limit) != bool(claims.no_limit), text
        if claims.limit:
            made = compressor_of(claims.limit).call.constructor
            assert made is compressor_of(text).call.constructor, text


# Several compressors have one and the same limit.
LIMITS = {claims.limit: text for text, claims in ALL_COMPRESSORS.items() if claims.limit}
LIMITS |= {ALL_COMPRESSORS[text].limit: text for text in sorted(CODE_PATHS)}


@of([text for limit, text in LIMITS.items() if limit], fast=CODE_PATHS)
def test_identity_at_the_no_compression_limit(text):
    claims = ALL_COMPRESSORS[text]
    compressor, updates = compressor_of(claims.limit), random_updates(3, LIMIT, WORKERS)
    state = first_state(compressor, LIMIT, WORKERS)
    reduce = over_vmap(compressor, axes_of(text, WORKERS))
    mean, *_ = jax.jit(reduce)(jax.random.key(1), updates, state)
    rounding = max(claims.limit_rounding(x) for x in jax.tree.leaves(updates))
    assert_close(first_row(mean), like(mean, mean_over_workers(updates)), rounding=rounding)


# Error feedback.

# Of |updates + memory|^2 by |updates|^2: the theory's 4 (1 - delta) / delta^2 for a delta of 1/16,
# the least among those compressors.
MOST_CARRIED = 960


@in_a_long_run
def test_an_error_memory_stays_bounded(text):
    (early, late), came = energies(long_run(text).carried), energies(long_run(text).updates)
    assert late < 2 * early and late < MOST_CARRIED * came[1]


def energies(trees) -> tuple[float, float]:
    """Those of the second third of a long run, and of the last."""
    third = LONG_RUN // 3
    thirds = [slice(third, 2 * third), slice(2 * third, None)]
    return tuple(sum(energy(x[part]) for x in jax.tree.leaves(trees)) for part in thirds)


def is_per_chunk(text: str) -> bool:
    """Whether the owner of a chunk has the residual of all workers."""
    return two_phase in [one.call.constructor for one in walk(compressor_of(text))]


CONTRACTING_IN_PRACTICE = [
    text for text in filter(simulates_memory, ALL_COMPRESSORS) if not is_per_chunk(text)
]


@of(CONTRACTING_IN_PRACTICE)
def test_a_residual_is_smaller_than_the_update(text):
    """Of typical gradients, where `contracts` says so."""
    assert_smaller(steps(text)[0])


@of(CONTRACTING_IN_PRACTICE, fast=CODE_PATHS)
def test_a_residual_of_large_arrays_is_smaller_than_the_update(text):
    assert_smaller(large_step(text))


def assert_smaller(result: Result) -> None:
    left, came = (sum(map(energy, jax.tree.leaves(x))) for x in (result.residual, result.updates))
    assert left < came


NOT_CONTRACTING = [
    *("qsgd(2)", "terngrad()", "random_k(0.1, rescale=True)"),
    *("sign_majority()", "importance_sampled(0.1)", "terngrad(clip=None)", "nuqsgd(3)"),
    *("bernoulli(0.1, rescale=True)", "rotated(qsgd(2))", "monitor(qsgd(2))"),
]


@pytest.mark.parametrize("text", NOT_CONTRACTING)
def test_what_does_not_contract_gets_no_memory(text):
    assert not compressor_of(text).contracts
    with pytest.raises(ValueError, match=r"error_feedback is unstable around .*control_variate"):
        jaxcompress.error_feedback(compressor_of(text))


@pytest.mark.parametrize("text", [*NOT_CONTRACTING[:6], *slow(*NOT_CONTRACTING[6:])])
def test_what_does_not_contract_loses_more_than_half(text):
    compressor, updates = compressor_of(text), random_updates(6, jnp.zeros(2048), 2)
    state = first_state(compressor, jnp.zeros(2048), 2)
    reduce = jax.jit(over_vmap(compressor, axes_of(text, 2)))
    assert energy(reduce(jax.random.key(0), updates, state)[1]) > 0.5 * energy(updates)


# Shapes and bits.


@every_compressor
def test_zeros_in_zeros_out(text):
    program = on_devices(text)
    zeros = jax.tree.map(jnp.zeros_like, random_updates(0, MIXED, WORKERS))
    result = run_on(program, 0, zeros, program.state)
    assert not any(np.any(x) for x in jax.tree.leaves((result.mean, result.residual)))
    # And it recovers: the next updates get through.
    after = run_on(program, 1, random_updates(1, MIXED, WORKERS), result.after)
    assert is_finite((after.mean, after.residual, after.after))
    assert sum(map(energy, jax.tree.leaves(after.mean))) > 0


@every_compressor
def test_shapes_and_dtypes_and_tree_are_kept(text):
    result = steps(text)[0]
    # A memory is in float32, and so are the sums with it.
    least = jnp.float32 if compressor_of(text).has_memory else jnp.bfloat16
    for part in (result.mean, result.residual):
        assert jax.tree.structure(part) == jax.tree.structure(result.updates)
        for x, update in zip(*map(jax.tree.leaves, (part, result.updates)), strict=True):
            assert x.shape == update.shape
            assert x.dtype in (update.dtype, jnp.promote_types(update.dtype, least))


# What `compress` adds is the same for all.
@of(ALL_COMPRESSORS, fast=TRAVEL)
def test_compress_keeps_shapes_and_dtypes_and_tree(text):
    axes = axes_of(text, WORKERS)
    names = tuple(axes) if len(axes) > 1 else "data"
    transformation = jaxcompress.compress(compressor_of(text), names)

    def one_worker(updates, params):
        return transformation.update(updates, transformation.init(params), params)[0]

    for name, size in reversed(axes.items()):
        one_worker = jax.vmap(one_worker, (0, None), axis_name=name, axis_size=size)
    # One array is enough to see its dtype, and others would be traced as it is.
    params = {name: x for name, x in MIXED.items() if name not in ("scalar", "vector")}
    updates = jax.tree.map(lambda x: jnp.zeros((*axes.values(), *x.shape), x.dtype), params)
    mean = jax.eval_shape(one_worker, updates, params)
    assert jax.tree.structure(mean) == jax.tree.structure(updates)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(mean)] == [
        (x.shape, x.dtype) for x in jax.tree.leaves(updates)
    ]


@every_compressor
def test_empty_and_masked_trees_pass(text):
    axes = axes_of(text, WORKERS)
    reduce = over_vmap(compressor_of(text), axes)
    for tree in ({}, {"masked": optax.MaskedNode(), "none": None}):
        state = first_state(compressor_of(text), tree, WORKERS)
        mean, *_ = jax.eval_shape(reduce, jax.random.key(0), tree, state)
        assert jax.tree.structure(mean) == jax.tree.structure(tree)


@every_compressor
def test_bits_equal_what_the_jaxpr_moves(text):
    for result, branch in ((steps(text)[0], 0), (steps(text)[-1], -1)):
        counted = jaxcompress.traffic_of_jaxpr(
            on_devices(text).jaxpr, branch=lambda branches, branch=branch: branches[branch]
        )
        assert 8 * counted.payload_bytes == int(result.bits[0])


@every_compressor
def test_the_compiled_program_moves_the_bits_in_a_few_collectives(text):
    program = on_devices(text)
    requested = jaxcompress.traffic_of_jaxpr(program.jaxpr, branch=lambda branches: branches[-1])
    compiled = jaxcompress.traffic_of_hlo(
        program.compiled.as_text(), branch=lambda branches: branches[-1]
    )
    assert len(compiled.collectives) <= MOST_COLLECTIVES
    # On CPUs XLA widens what an all-reduce adds in bfloat16, which doubles its bytes.
    asked = bytes_of(requested, "all-reduce")
    assert asked <= bytes_of(compiled, "all-reduce") <= 2 * asked
    for operation in ("all-gather", "all-to-all", "collective-permute"):
        assert bytes_of(compiled, operation) == bytes_of(requested, operation)


def bytes_of(traffic: jaxcompress.Traffic, operation: str) -> int:
    """Those of all collectives of one kind."""
    found = [each for each in traffic.collectives if each.operation == operation]
    return sum(each.count * each.payload_bytes for each in found)


@on_a_second_mesh
def test_bits_equal_what_the_compiled_program_moves(text):
    program = on_two_axes(text)
    requested = jaxcompress.traffic_of_jaxpr(program.jaxpr, branch=lambda branches: branches[-1])
    compiled = jaxcompress.traffic_of_hlo(
        program.compiled.as_text(), branch=lambda branches: branches[-1]
    )
    assert compiled.payload_bytes == requested.payload_bytes
    assert compiled.wire_bytes == requested.wire_bytes
    assert len(compiled.collectives) <= MOST_COLLECTIVES


@every_compressor
def test_message_bits_are_known_from_shapes_alone(text):
    # The larger of two, since one that sends two messages in turn counts with the larger.
    sent = max(int(result.bits[0]) for result in steps(text)[-2:])
    known = known_bits(text, MIXED)
    assert 0 < known <= sent
    if not ALL_COMPRESSORS[text].varies:
        assert sent < known + 32 * WIDTHS


@of([text for text, claims in ALL_COMPRESSORS.items() if not claims.varies], fast=CODE_PATHS)
def test_message_bits_of_large_arrays_are_known_from_shapes_alone(text):
    known, sent = known_bits(text, LARGE), int(large_step(text).bits[0])
    # A long message fills whole lanes.
    assert known <= sent < known + 32 * (WIDTHS + LANES)


def known_bits(text: str, tree: Any) -> int:
    """The bits of a message, known before there is one."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
    return sum(jax.tree.leaves(compressor_of(text).message_bits(shapes)))


# Reproducibility.


@every_compressor
def test_same_key_same_result(text):
    first, program = steps(text)[0], on_devices(text)
    again = run_on(program, 0, first.updates, program.state)
    assert_same_bits(again[1:4], first[1:4])
    assert_same_bits(again.after, first.after)
    other = run_on(program, 8, first.updates, program.state)
    differs = any(
        np.any(np.asarray(a) != np.asarray(b))
        for a, b in zip(*map(jax.tree.leaves, (first.mean, other.mean)), strict=True)
    )
    assert differs == ALL_COMPRESSORS[text].random


@every_compressor
def test_state_saved_and_restored_gives_the_same_next_step(text):
    saved = [as_numpy(x) for x in jax.tree.leaves(steps(text)[2].after)]
    blank = first_state(compressor_of(text), MIXED, WORKERS)
    restored = jax.tree.unflatten(jax.tree.structure(blank), [jnp.asarray(x) for x in saved])
    expected = steps(text)[3]
    found = run_on(on_devices(text), 3, expected.updates, restored)
    assert_same_bits(found[1:4], expected[1:4])
    assert_same_bits(found.after, expected.after)


@on_a_second_mesh
def test_shard_map_equals_vmap(text):
    """And two mesh axes equal one, save where a compressor gives them different tasks."""
    seen, program = long_run(text), on_two_axes(text)
    state = program.state
    for step in range(COMPARED):
        carried, mean, residual = (
            jax.tree.map(lambda x, step=step: x[step], part) for part in seen[1:4]
        )
        result = run_on(program, step, carried, state)
        # Sums are rounded by their largest terms.
        scale = largest(carried)
        assert_close(result.mean, mean, scale)
        assert_close(result.residual, residual, scale)
        state = result.after


@every_compressor
def test_replicas_are_equal_to_the_last_bit(text):
    last = steps(text)[-1]
    assert_equal_on_all_workers(last)
    for x in replicated_parts(last.after):
        assert len({as_numpy(shard.data).tobytes() for shard in x.addressable_shards}) == 1


def assert_equal_on_all_workers(result: Result) -> None:
    for x in jax.tree.leaves(result.mean):
        assert len({np.asarray(row).tobytes() for row in x}) <= 1 or x.size == 0


@of([text for text in ALL_COMPRESSORS if compressor_of(text).has_memory])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_a_change_of_the_number_of_workers_keeps_the_mean_of_the_memory(text, workers):
    before = steps(text)[-1].after
    after = jaxcompress.reshard_workers(before, workers)
    parts = list(zip(own_parts(before), own_parts(after), strict=True))
    assert parts
    for old, new in parts:
        assert new.shape == (workers, *old.shape[1:])
        rounding = ALL_COMPRESSORS[text].rounds * largest(old)
        assert_close(np.mean(new, axis=0), np.mean(old, axis=0), rounding=rounding)


def replicated_parts(state) -> list:
    """What is the same on all of them."""
    return [x for x in jax.tree.leaves(state, is_leaf=is_per_worker) if not is_per_worker(x)]


def first_row(tree):
    return jax.tree.map(lambda x: x[0], tree)


def is_float(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def as_float64(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def as_float32(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float32), tree)


def like(rows, tree):
    """`tree` in the dtypes of `rows`."""
    return jax.tree.map(lambda one, x: np.asarray(x, one.dtype), rows, tree)
