"""Laws of training on sharded meshes: nothing is lost, and state outlives all that becomes of it.

The loss is |params - target|^2 / 2, so each worker's gradient is known: params - its mean target.
One program for each compressor and mesh serves all of its laws.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from claims import ALL_COMPRESSORS
from helpers import assert_close, assert_same_bits, mean_over_workers
from invariants import Step, added, memory, own_parts, update_and_memory
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from laws_programs import axes_of, compressor_of, simulates_memory
from sharded_helpers import SHAPES, SPECS, mesh_of

import jaxcompress
from jaxcompress.distributed.specs import is_per_worker
from jaxcompress.feedback.memories import is_memory

THREE_AXES = {
    "kernel": P("tensor", "model"),
    "embedding": P(("model", "tensor"), None),
    "bias": P("tensor"),
    "scale": P(),
}
ROWS = 4  # of each worker's batch
MESHES = ((2, 4), (4, 2), (2, 2, 2))
TOP_K, POWER_SGD, MOMENTUM = CHOSEN = (
    "error_feedback(top_k(0.1))",
    "error_feedback(power_sgd(2))",
    "momentum_correction(top_k(0.1))",
)
LOSSLESS = "error_feedback(top_k(1.0))"


def every_other_compressor() -> list[str]:
    """Those of one axis, with error feedback where it is allowed."""
    found = []
    for text in ALL_COMPRESSORS:
        if axes_of(text, 2) == {"data": 2}:
            remembers = not compressor_of(text).has_memory and simulates_memory(text)
            found.append(f"error_feedback({text})" if remembers else text)
    return [text for text in dict.fromkeys(found) if text not in CHOSEN]


def grid(texts: tuple[str, ...], quick: set[tuple[str, tuple]]):
    """Each compressor on each mesh; what is not `quick` is among the slow tests."""
    return pytest.mark.parametrize(
        ("text", "shape"),
        [
            pytest.param(
                text,
                shape,
                marks=[
                    pytest.mark.xdist_group(f"{text}{shape}"),
                    *([] if (text, shape) in quick else [pytest.mark.slow]),
                ],
            )
            for text in texts
            for shape in MESHES
        ],
        scope="module",
    )


QUICK = {(TOP_K, (4, 2)), (POWER_SGD, (2, 2, 2))}
each_on_each_mesh = grid(CHOSEN, QUICK)


class Training(NamedTuple):
    """A compiled step on a mesh, and what it starts from."""

    mesh: Mesh
    optimizer: optax.GradientTransformation
    step: Any
    params: Any
    state: Any


def placed(tree: Any, mesh: Mesh) -> Any:
    specs = THREE_AXES if "tensor" in mesh.shape else SPECS
    # By way of NumPy, or a replica would share memory with the original.
    return {
        name: jax.device_put(np.array(x), NamedSharding(mesh, specs[name]))
        for name, x in tree.items()
    }


def first_params(dtype=jnp.float32) -> Any:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()}


def targets(seed: int, workers: int) -> Any:
    rng = np.random.default_rng(seed)
    rows = ROWS * workers
    return {name: rng.standard_normal((rows, *x), np.float32) for name, x in SHAPES.items()}


def loss_fn(params, batch):
    def one(x, target):
        return jnp.mean(jnp.square(x.astype(jnp.float32) - target), axis=0).sum() / 2

    return sum(jax.tree.leaves(jax.tree.map(one, params, batch)))


def last_mean() -> optax.GradientTransformation:
    """Keeps the average in the state, for the laws to see."""
    return optax.GradientTransformation(
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda updates, state, params=None: (updates, updates),
    )


@functools.lru_cache(maxsize=8)
def training(
    text: str, shape: tuple[int, ...], dtype=jnp.float32, micro_batches: int = 1, donate=False
) -> Training:
    mesh = mesh_of(*shape)
    params = placed(first_params(dtype), mesh)
    link = jaxcompress.compress(compressor_of(text), min_compression_rate=0)
    # A momentum after the average would be one too many for momentum_correction.
    after = optax.sgd(0.1) if "momentum_correction" in text else optax.adam(0.1)
    optimizer = jaxcompress.apply_if_all_finite(
        optax.chain(jaxcompress.on_shards(link, params), last_mean(), after)
    )
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(
        loss_fn, optimizer, mesh, micro_batches=micro_batches, donate=donate
    )
    batch = jaxcompress.shard_batch(targets(0, shape[0]), mesh)
    return Training(mesh, optimizer, step.lower(params, state, {}, batch).compile(), params, state)


def run(one: Training, params: Any, state: Any, seeds) -> tuple[Any, Any, list[float]]:
    losses = []
    for seed in seeds:
        batch = jaxcompress.shard_batch(targets(seed, one.mesh.shape["data"]), one.mesh)
        params, state, _, metrics = one.step(params, state, {}, batch)
        losses.append(float(metrics["loss"]))
    return params, state, losses


@functools.lru_cache(maxsize=8)
def after_three_steps(text: str, shape: tuple[int, ...]) -> tuple[Any, Any, list[float]]:
    one = training(text, shape)
    return run(one, one.params, one.state, range(3))


def gradients(params: Any, seed: int, workers: int) -> Any:
    """Of all workers, (workers, …), by NumPy."""

    def one(x, target):
        mean = target.reshape(workers, ROWS, *x.shape).mean(1, np.float64)
        return (np.asarray(x, np.float64) - mean).astype(x.dtype)

    return jax.tree.map(one, jax.device_get(params), targets(seed, workers))


def shards_of(state: Any, x: Any) -> Any:
    """(state of a compressor, its arrays by name, an index into each) for every shard of a worker,
    as if its arrays were whole.
    """
    for group in state.inner[0]:
        names = [path[0].key for path, _ in group.specs]
        mesh = x[names[0]].sharding.mesh
        sizes = [mesh.shape[axis] for axis in group.axes]
        for number in range(int(np.prod(sizes))):
            own = jax.device_get(group.value)
            if group.axes:
                own = jax.tree.map(functools.partial(shard_of, number), own, is_leaf=is_per_worker)
            place = dict(zip(group.axes, np.unravel_index(number, sizes), strict=True))
            device = mesh.devices[tuple(place.get(axis, 0) for axis in mesh.axis_names)]
            index = {
                name: x[name].sharding.devices_indices_map(x[name].shape)[device] for name in names
            }
            yield own.inner[0], index


def shard_of(number: int, node: Any) -> Any:
    if is_per_worker(node):
        return jax.tree.map(lambda x: x[:, number], node)
    return node[number]


def cut(tree: Any, index: dict[str, Any], *lead) -> Any:
    """One shard of each array, and none of the arrays without an index."""
    return {
        name: np.asarray(x)[(*lead, *index[name])] if name in index else optax.MaskedNode()
        for name, x in tree.items()
    }


def assert_nothing_is_lost(text: str, one: Training, steps: int) -> None:
    """mean + memory' == entering, and the invariants of shifts, of every shard in every step."""
    claims = ALL_COMPRESSORS.get(text)
    entering = claims.entering if claims else update_and_memory
    rounds = claims.rounds if claims else 0.0
    params, state = one.params, one.state
    for number in range(steps):
        updates = gradients(params, number, one.mesh.shape["data"])
        before, (params, state, _) = state, run(one, params, state, [number])
        assert int(state.skipped) == 0
        means = jax.device_get(state.inner[1])
        pairs = zip(shards_of(before, params), shards_of(state, params), strict=True)
        for (old, index), (new, _) in pairs:
            update, mean = mean_over_workers(cut(updates, index, slice(None))), cut(means, index)
            step = Step(number, update, jax.tree.map(np.float64, mean), old, new)
            for left, right in claims.invariant(step) if claims and claims.invariant else ():
                assert_close(*(jax.tree.map(np.float32, side) for side in (left, right)))
            if not any(map(is_memory, jax.tree.leaves(new, is_leaf=is_memory))):
                continue  # of shifts, which do not keep the residual
            found = added(step.mean, memory(new, update))
            scale = max(1.0, *(float(np.abs(x).max()) for x in jax.tree.leaves(found)))
            as_mean = functools.partial(jax.tree.map, lambda like, x: x.astype(like.dtype), mean)
            assert_close(as_mean(found), as_mean(entering(step)), scale, rounds * scale)


@each_on_each_mesh
def test_means_and_memories_are_all_updates(text, shape):
    assert_nothing_is_lost(text, training(text, shape), 3)


@pytest.mark.slow
@pytest.mark.parametrize("text", every_other_compressor())
def test_the_laws_of_one_mesh_whatever_the_compressor(text):
    one = training(text, (2, 4))
    if compressor_of(text).has_memory:  # the state of others has no residual
        assert_nothing_is_lost(text, one, 3)
    params, state, _ = after_three_steps(text, (2, 4))
    assert_replicas_are_equal((params, state))
    assert_skipped(text, (2, 4))


def test_memories_of_bfloat16_gradients_are_float32():
    one = training(TOP_K, (2, 4), jnp.bfloat16)
    assert_nothing_is_lost(TOP_K, one, 3)
    params, state, _ = run(one, one.params, one.state, range(3))
    assert {x.dtype for x in params.values()} == {jnp.dtype(jnp.bfloat16)}
    assert {x.dtype for x in own_parts(state)} == {jnp.dtype(jnp.float32)}


@each_on_each_mesh
def test_all_replicas_are_equal(text, shape):
    params, state, losses = after_three_steps(text, shape)
    assert losses[-1] < losses[0]
    assert_replicas_are_equal((params, state))


def assert_replicas_are_equal(tree: Any) -> None:
    """Devices that hold the same part of an array hold the same bits."""
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        x = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        parts: dict[str, set[bytes]] = {}
        for shard in x.addressable_shards:
            parts.setdefault(str(shard.index), set()).add(np.asarray(shard.data).tobytes())
        assert all(len(bits) == 1 for bits in parts.values()), jax.tree_util.keystr(path)


@each_on_each_mesh
def test_a_restored_run_has_the_bits_of_one_that_went_on(text, shape, tmp_path):
    one = training(text, shape)
    saved = after_three_steps(text, shape)[:2]
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step", saved)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "step", (one.params, one.state))
    assert_same_bits(restored, saved)
    assert_same_bits(run(one, *restored, range(3, 5))[:2], run(one, *saved, range(3, 5))[:2])


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        pytest.param(
            text,
            old,
            new,
            marks=[
                pytest.mark.xdist_group(f"{text}{old}"),
                *([] if (text, old) == (TOP_K, (4, 2)) else [pytest.mark.slow]),
            ],
        )
        for text in (*CHOSEN, "error_feedback(top_k(0.1), dtype='int8')")
        for old, new in (
            ((4, 2), (2, 2)),
            ((2, 2), (4, 2)),
            ((2, 4), (1, 4)),
            ((2, 2, 2), (1, 2, 2)),
        )
    ],
)
def test_another_number_of_workers_keeps_every_mean_and_trains_on(text, old, new):
    one = training(text, new)
    params, state, losses = after_three_steps(text, old)
    params, state = jax.device_get(params), jax.tree.map(on_host, state)
    state = jaxcompress.place_state(jaxcompress.reshard_workers(state, new[0]), params, one.mesh)
    kept = list(zip(own_parts(state), own_parts(after_three_steps(text, old)[1]), strict=True))
    assert kept
    for found, was in kept:
        assert found.shape == (new[0], *was.shape[1:])
        rounding = float(np.abs(was).max(initial=0)) / 127 if "int8" in text else 0
        assert_close(found.mean(0), was.mean(0), rounding=rounding)
    # A compiled step refuses what is placed otherwise than the state of init_state.
    *after, later = run(one, placed(params, one.mesh), state, range(3, 6))
    assert later[-1] < losses[-1]
    assert_replicas_are_equal(after)


def on_host(x: jax.Array) -> Any:
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)


@each_on_each_mesh
def test_a_gradient_that_is_not_finite_in_one_shard_changes_nothing(text, shape):
    assert_skipped(text, shape)


def assert_skipped(text: str, shape: tuple[int, ...]) -> None:
    one = training(text, shape)
    params, state, _ = after_three_steps(text, shape)
    for name in ("kernel", "scale"):
        batch = targets(3, shape[0])
        batch[name][-1, -1] = np.nan  # of the last worker, in its last shards
        bad = jaxcompress.shard_batch(batch, one.mesh)
        same, after, _, metrics = one.step(params, state, {}, bad)
        assert float(metrics["applied"]) == 0
        assert int(after.skipped) == int(state.skipped) + 1
        assert_same_bits((same, after.inner), (params, state.inner))
    found, expected = (run(one, *each, [4]) for each in ((same, after), (params, state)))
    assert_same_bits((found[0], found[1].inner), (expected[0], expected[1].inner))


def test_two_micro_batches_are_one_batch():
    found = []
    for parts in (1, 2):
        one = training(LOSSLESS, (2, 4), micro_batches=parts)
        found.append(run(one, one.params, one.state, range(3)))
    for x, y in zip(*(jax.tree.leaves(each[0]) for each in found), strict=True):
        assert_close(x, y, scale=10)
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-5)


@grid(CHOSEN, {(TOP_K, (4, 2))})
def test_a_donated_step_has_the_same_bits(text, shape):
    one = training(text, shape, donate=True)
    # Copies, since the step overwrites them.
    first = placed(one.params, one.mesh), jax.tree.map(jnp.copy, one.state)
    params, state, _ = run(one, *first, range(3))
    assert all(x.is_deleted() for x in jax.tree.leaves((first[0], first[1].inner)))
    assert_same_bits((params, state), after_three_steps(text, shape)[:2])
