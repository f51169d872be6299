"""Two nodes of four devices: the law over all eight, the share of the slow link, and what is
refused.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
    assert_close,
    assert_same_bits,
    mean_over_workers,
    random_updates,
    slow_unless,
)
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress import (
    block_top_k,
    compress,
    dense,
    error_feedback,
    hierarchical,
    parse,
    power_sgd,
    qsgd,
    top_k,
)
from jaxcompress.feedback.memories import ErrorMemory

AXES = ("node", "gpu")
TREE = {
    "kernel": jnp.zeros((3, 3, 4, 10)),
    "matrix": jnp.zeros((40, 30)),
    "odd": jnp.zeros((7, 5)),
    "wide": jnp.zeros((6, 50)),
    "vector": jnp.zeros(37),
    "scalar": jnp.zeros(()),
    "empty": jnp.zeros((0, 3)),
}
INTER = [
    "dense()",
    "top_k(0.1)",
    "block_top_k(0.1, block=64)",
    "qsgd(8)",
    "two_phase(qsgd(8, group=64))",
    "sign_majority()",
]


@functools.cache
def mesh(nodes=2):
    return jaxcompress.node_mesh(nodes)


def run_on(nodes, compressor, updates, state=None):
    """Mean and residual of all eight devices, on a mesh of so many nodes."""

    def one_device(updates):
        own = jax.tree.map(lambda x: x[0], updates)
        start = compressor.init(jax.random.key(0), own) if state is None else state
        reduced, _ = compressor.reduce(jax.random.key(1), own, start, AXES)
        parts = (reduced.mean, reduced.residual)
        return jax.tree.map(lambda x: x[None], parts), reduced.mean

    step = jax.shard_map(one_device, mesh=mesh(nodes), in_specs=P(AXES), out_specs=(P(AXES), P()))
    return jax.jit(step)(updates)[0]


# Each way to travel, and meshes of every kind: one node, several, and nodes of one device.
ONCE = [
    ("dense()", 4),
    ("top_k(0.1)", 8),
    ("block_top_k(0.1, block=64)", 1),
    ("two_phase(qsgd(8, group=64))", 2),
    ("sign_majority()", 2),
]


@pytest.mark.parametrize(("text", "nodes"), slow_unless(ONCE, INTER, (1, 2, 4, 8)))
def test_the_law_over_all_devices(text, nodes):
    updates = random_updates(0, TREE, 8)
    mean, residual = run_on(nodes, hierarchical(dense(), parse(text)), updates)
    assert_law(mean, residual, updates)
    for device in range(1, 8):
        assert_same_bits(jax.tree.map(lambda x, device=device: x[device], mean), first_row(mean))


@pytest.mark.parametrize("text", ["dense()", "power_sgd(10)"])
def test_an_exact_inter_is_dense(text):
    # Shares of ten rows, which a rank of ten holds exactly.
    updates = random_updates(1, {"matrix": TREE["matrix"]}, 8)
    mean, residual = run_on(2, hierarchical(dense(), parse(text)), updates)
    assert_close(first_row(mean), as_float32(mean_over_workers(updates)))
    assert_close(residual, jax.tree.map(jnp.zeros_like, updates), scale=10)


def test_low_rank_is_shared_along_the_longer_side():
    """Kernels with few outputs, as 9 x 128, and a wide matrix have rows for four devices and a rank
    of four.
    """
    shapes = {
        "few": jnp.zeros((3, 3, 128, 1)),
        "two": jnp.zeros((3, 3, 64, 2)),
        "wide": jnp.zeros((5, 90)),
    }
    compressor, updates = hierarchical(dense(), power_sgd(4)), random_updates(3, shapes, 8)
    assert_law(*run_on(2, compressor, updates), updates)


def test_low_rank_sees_rows_of_an_attentions_matrix():
    token = random_updates(2, {"input": jnp.zeros(16), "error": jnp.zeros((2, 8))}, 1)
    # (width, heads, head width), of rank 1 as 16 x 16
    one_token = jnp.tensordot(token["input"][0], token["error"][0], axes=0)
    updates = {"query": jnp.broadcast_to(one_token, (8, 16, 2, 8))}
    mean, residual = run_on(2, hierarchical(dense(), parse("power_sgd(1)")), updates)
    assert_close(first_row(mean), {"query": np.asarray(one_token)})
    assert_close(residual, jax.tree.map(jnp.zeros_like, updates))


@pytest.mark.parametrize("text", ["block_top_k(0.1, block=64)", "power_sgd(1)", "sign()"])
def test_one_node_is_dense_whatever_inter_is(text):
    updates = random_updates(1, {"matrix": TREE["matrix"], "kernel": TREE["kernel"]}, 8)
    mean, residual = run_on(1, hierarchical(dense(), parse(text)), updates)
    assert_close(first_row(mean), as_float32(mean_over_workers(updates)))
    assert not any(np.any(x) for x in jax.tree.leaves(residual))


def test_an_array_with_fewer_rows_than_devices_is_shared_too():
    wide = {"wide": jnp.zeros((1, 4000))}
    compressor = hierarchical(dense(), top_k(0.1))

    def bits(updates):
        own = jax.tree.map(lambda x: x[0], updates)
        return compressor.reduce(
            jax.random.key(1), own, compressor.init(jax.random.key(0), own), AXES
        )[0].bits

    found = []

    def one_device(updates):
        found.append(bits(updates))
        return jax.tree.map(lambda x: x[0, 0, :1], updates)

    step = jax.shard_map(one_device, mesh=mesh(2), in_specs=P(AXES), out_specs=P(AXES))
    jax.eval_shape(step, random_updates(0, wide, 8))
    # A reduce-scatter of all, an all-gather of a quarter, and a tenth of that with its indices.
    assert found[0] < 32 * (4000 + 1000) + 100 * (32 + 12)
    updates = random_updates(0, wide, 8)
    assert_law(*run_on(2, compressor, updates), updates)


def test_sizes_beyond_31_bits_add_up_beside_a_switch():
    compressor = parse(
        "switch(warmup(1000), hierarchical(dense(), dense()),"
        " hierarchical(dense(), block_top_k(0.01)))"
    )
    like = jax.ShapeDtypeStruct((8, 70_000_000), jnp.float32)

    def one_device(x):
        state = compressor.init(jax.random.key(0), x[0])
        return jnp.float32(compressor.reduce(jax.random.key(1), x[0], state, AXES)[0].bits)[None]

    jax.eval_shape(
        jax.shard_map(one_device, mesh=mesh(2), in_specs=P(AXES), out_specs=P(AXES)), like
    )


def test_labels_that_differ_for_a_share_are_told():
    text = "partition({'matrix': power_sgd(2), 'rest': dense()}, by_shape(min_size=1000))"
    with pytest.raises(ValueError, match="partition around hierarchical"):
        run_on(
            2, hierarchical(dense(), parse(text)), random_updates(4, {"matrix": TREE["matrix"]}, 8)
        )


def test_one_device_a_node_is_inter():
    updates = random_updates(2, {"vector": TREE["vector"]}, 8)
    mean, residual = run_on(8, hierarchical(dense(), top_k(0.1)), updates)

    def reduce(x):
        return top_k(0.1).reduce(jax.random.key(1), x, (), "data")[0]

    alone = jax.jit(jax.vmap(reduce, axis_name="data"))(updates)
    assert_close(mean, alone.mean)
    assert_close(residual, alone.residual)


def test_what_inter_drops_comes_later():
    optimizer = compress(error_feedback(hierarchical(dense(), block_top_k(0.1, block=64))), AXES)
    params = {"matrix": TREE["matrix"]}
    updates = random_updates(3, params, 8)
    state = jaxcompress.init_state(optimizer, params, mesh(), AXES)
    specs = jaxcompress.state_specs(state, AXES)

    def one_device(updates, state):
        own = jax.tree.map(lambda x: x[0], updates)
        mean, state = optimizer.update(own, jaxcompress.squeeze_worker_axis(state))
        return mean, jaxcompress.expand_worker_axis(state)

    step = jax.jit(
        jax.shard_map(one_device, mesh=mesh(), in_specs=(P(AXES), specs), out_specs=(P(), specs))
    )
    total = np.zeros((40, 30))
    for _ in range(60):
        mean, state = step(updates, state)
        total += np.asarray(mean["matrix"], np.float64)
    left = np.asarray(state.inner[0].error.value.arrays["matrix"], np.float64).mean(axis=0)
    expected = 60 * mean_over_workers(updates)["matrix"]
    np.testing.assert_allclose(total + left, expected, rtol=1e-4, atol=1e-3)
    assert np.linalg.norm(left) < 0.5 * np.linalg.norm(expected)


ERROR, MOMENTUM = ("error_feedback", ""), ("momentum_correction", ", masking=False")


@pytest.mark.parametrize(
    ("memory", "text"),
    slow_unless(
        [(ERROR, "top_k(0.1)"), (MOMENTUM, "two_phase(qsgd(8, group=64))"), (MOMENTUM, "dense()")],
        (ERROR, MOMENTUM),
        ("top_k(0.1)", "dense()", "two_phase(qsgd(8, group=64))"),
    ),
)
def test_a_step_of_nothing_finite_keeps_all_of_a_memory_from_another_mesh(memory, text):
    """Also outside a device's own share, where a memory that was resharded may hold something."""
    compressor = parse(f"{memory[0]}(hierarchical(dense(), {text}){memory[1]})")
    held = random_updates(0, TREE, workers=8)

    def one_device(error, updates):
        own, error = (jax.tree.map(lambda x: x[0], tree) for tree in (updates, error))
        error = jaxcompress.PerWorker(ErrorMemory(error))
        state = compressor.init(jax.random.key(0), own)._replace(error=error)
        _, after = compressor.reduce(jax.random.key(1), own, state, AXES)
        return jax.tree.map(lambda x: x[None], after.error.value.arrays)

    step = jax.jit(jax.shard_map(one_device, mesh=mesh(), in_specs=P(AXES), out_specs=P(AXES)))
    for bad in (np.nan, np.inf):
        assert_same_bits(step(held, jax.tree.map(lambda x, bad=bad: x + bad, held)), held)


def train_step(compressor):
    """A whole step with `make_train_step` on the mesh of two axes, and its arguments."""
    optimizer = optax.chain(compress(compressor, AXES), optax.sgd(0.05))
    params = jaxcompress.replicate({"w": jnp.zeros((64, 32)), "b": jnp.zeros(32)}, mesh())
    state = jaxcompress.init_state(optimizer, params, mesh(), AXES)
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    batch = jaxcompress.shard_batch({"x": x, "y": x[:, :32]}, mesh(), AXES)

    def loss_fn(params, extra, batch):
        return jnp.mean((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2), (extra, {})

    return jaxcompress.make_train_step(loss_fn, optimizer, mesh(), AXES), params, state, batch


@pytest.mark.parametrize("text", ["power_sgd(4)", "block_top_k(0.05, block=64, inner=qsgd(8))"])
def test_a_training_step_learns(text):
    step, params, state, batch = train_step(error_feedback(hierarchical(dense(), parse(text))))
    first = None
    for _ in range(150):
        params, state, _, metrics = step(params, state, {}, batch)
        first = first or float(metrics["loss"])
    assert float(metrics["loss"]) < 0.5 * first


def test_the_slow_link_carries_a_share_of_the_message_and_the_fast_one_the_array():
    step, params, state, batch = train_step(error_feedback(hierarchical(dense(), top_k(0.05))))
    requested, compiled = jaxcompress.traffic(step, params, state, {}, batch)
    for counted in (requested, compiled):
        by_group = {
            (each.operation, each.group): each.payload_bytes
            for each in counted.collectives
            if each.operation != "all-reduce"
        }
        # 2,048 weights and 32 biases over four devices; a share of 512 sends 26 values, one of 8
        # one, and their indices.
        assert by_group[("reduce-scatter", 4)] == 4 * (2048 + 32)
        assert by_group[("all-gather", 4)] == 4 * (512 + 8)
        assert 27 * 4 < by_group[("all-gather", 2)] < 27 * 8
    # The message, and what the step averages over all eight: the loss.
    slow = requested.over("node")
    assert {(each.operation, each.group) for each in slow.collectives} == {
        ("all-gather", 2),
        ("all-reduce", 8),
    }
    assert slow.wire_bytes < 27 * 8 + 16


def test_its_text_reads_back():
    text = "error_feedback(hierarchical(dense(), two_phase(qsgd(4))))"
    assert repr(parse(text)) == text


@pytest.mark.parametrize("axis_name", ["data", ("data",), ("a", "b", "c")])
def test_another_number_of_axes_is_refused(axis_name):
    compressor = hierarchical(dense(), top_k(0.1))
    with pytest.raises(ValueError, match=r"two axes, the slow one first.*node_mesh\(\); got"):
        compressor.reduce(
            jax.random.key(0),
            jnp.zeros(8),
            compressor.init(jax.random.key(0), jnp.zeros(8)),
            axis_name,
        )


def test_another_intra_is_refused():
    with pytest.raises(
        ValueError, match=r"write hierarchical\(dense\(\), …\); got intra=qsgd\(8\)"
    ):
        hierarchical(qsgd(8), top_k(0.1))


def test_a_memory_inside_is_refused():
    with pytest.raises(
        ValueError,
        match=r"hierarchical takes a compressor without a memory; got error_feedback\(.*"
        r"Put one memory outside, as in error_feedback\(hierarchical\(…\)\)",
    ):
        hierarchical(dense(), error_feedback(top_k(0.1)))


@pytest.mark.parametrize(
    "inter", ["switch(warmup(10), dense(), sign())", "dgc_warmup(0.01, 10)", "acp_sgd(2)"]
)
def test_a_state_that_all_workers_share_is_refused_between_nodes(inter):
    with pytest.raises(ValueError, match=r"needs a state that is the same on all workers"):
        parse(f"hierarchical(dense(), {inter})")


def test_error_feedback_refuses_what_does_not_contract_between_nodes():
    with pytest.raises(
        ValueError, match=r"error_feedback is unstable around hierarchical\(dense\(\), q"
    ):
        error_feedback(hierarchical(dense(), qsgd(2)))


def test_a_rank_that_does_not_fit_a_share_is_told():
    # Seven rows over four devices: shares of two rows, and a rank of four.
    with pytest.raises(ValueError, match="fewer rows than the rank"):
        run_on(2, hierarchical(dense(), power_sgd(4)), random_updates(4, {"odd": TREE["odd"]}, 8))


def assert_law(mean, residual, updates):
    """mean + pmean(residual) == pmean(updates)"""
    kept = jax.tree.map(np.add, first_row(mean), mean_over_workers(residual))
    assert_close(as_float32(kept), as_float32(mean_over_workers(updates)), scale=10)


def first_row(tree):
    return jax.tree.map(lambda x: x[0], tree)


def as_float32(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float32), tree)
