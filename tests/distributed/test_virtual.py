"""Workers that share a device: the numbers of as many devices, the bytes that these would send, and
what is refused.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import FLOAT32, slow
from jax import lax

from jaxcompress import (
    VirtualMesh,
    apply_if_all_finite,
    clip_by_local_norm,
    compress,
    data_mesh,
    dense,
    init_state,
    local_sgd,
    make_local_step,
    make_train_step,
    parse,
    replicate,
    rows_of_workers,
    shard_batch,
    traffic_of_hlo,
    traffic_of_jaxpr,
)
from jaxcompress.distributed import virtual
from jaxcompress.distributed.jaxprs import sub_jaxprs
from jaxcompress.distributed.placement import as_numpy

WORKERS, ROWS, STEPS = 4, 16, 3
RNG = np.random.default_rng(0)
BATCH = RNG.standard_normal((ROWS, 50), np.float32), RNG.standard_normal((ROWS, 30), np.float32)
PARAMS = {
    "w": RNG.standard_normal((50, 30), np.float32),
    "b": np.zeros(30, np.float32),
    "none": np.zeros((0, 3)),
}
TOP_K = "error_feedback(top_k(0.05))"
KINDS = [
    "error_feedback(power_sgd(2))",
    "momentum_correction(dgc_warmup(0.05, warmup_steps=1))",
    *slow(TOP_K, "dense()", "qsgd(4)", "error_feedback(two_phase(sign()))"),
]


def loss_of(params, extra, batch):
    """A linear model, and the running mean of its first layer's input as what changes without a
    gradient.
    """
    x, y = batch
    loss = jnp.mean(jnp.square(x @ params["w"] + params["b"] - y))
    return loss, ({"mean": 0.9 * extra["mean"] + 0.1 * x.mean(0)}, {"largest": jnp.abs(x).max()})


def optimizer_with(text):
    chain = optax.chain(
        clip_by_local_norm(9.0), compress(parse(text), min_compression_rate=1), optax.sgd(0.1)
    )
    return apply_if_all_finite(chain)


def placed(text, mesh, loss_fn=loss_of):
    """The step over the workers of `mesh`, and its arguments."""
    optimizer, params = optimizer_with(text), replicate(PARAMS, mesh)
    arguments = (
        params,
        init_state(optimizer, params, mesh),
        replicate({"mean": np.zeros(50, np.float32)}, mesh),
    )
    return make_train_step(loss_fn, optimizer, mesh, micro_batches=2), (
        *arguments,
        shard_batch(BATCH, mesh),
    )


def trained(text, mesh, loss_fn=loss_of):
    """Everything that a step gives, after some of them; and the step as it was compiled."""
    step, (*state, batch) = placed(text, mesh, loss_fn)
    compiled = step.lower(*state, batch).compile()
    # Not by what was compiled, which is strict about the sharding of arrays without entries.
    for _ in range(STEPS):
        *state, metrics = step(*state, batch)
    return (*state, metrics), compiled


def asked_bytes(text, mesh):
    """What a step would send with a device for each worker."""
    step = make_train_step(loss_of, optimizer_with(text), mesh.abstract, micro_batches=2)
    return traffic_of_jaxpr(step.trace(*placed(text, mesh)[1]).jaxpr).wire_bytes


def assert_near(found, expected):
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(as_numpy(one), as_numpy(other), **FLOAT32)


@pytest.mark.parametrize("text", KINDS)
def test_numbers_and_counted_bytes_are_those_of_as_many_devices(text):
    found, _ = trained(text, VirtualMesh(WORKERS))
    expected, on_devices = trained(text, data_mesh(WORKERS))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert_near(found, expected)
    assert {device for x in jax.tree.leaves(found) for device in x.devices()} == {jax.devices()[0]}
    assert (
        asked_bytes(text, VirtualMesh(WORKERS))
        == traffic_of_hlo(on_devices.as_text()).wire_bytes
        > 0
    )


def test_what_would_differ_between_workers_is_refused_and_not_taken_from_the_first():
    mesh, optimizer = VirtualMesh(WORKERS), optax.sgd(0.1)
    params = replicate(PARAMS, mesh)
    step = make_train_step(loss_of, optimizer, mesh)
    extra = {"mean": np.zeros(50, np.float32)}
    with pytest.raises(ValueError, match="would differ between workers after this step"):
        step(params, init_state(optimizer, params, mesh), extra, shard_batch(BATCH, mesh))


def test_rows_that_do_not_divide_and_states_of_other_workers_are_refused():
    with pytest.raises(ValueError, match="a batch of 16 rows does not divide by 3 workers"):
        shard_batch(BATCH, VirtualMesh(3))
    step, (params, _, *rest) = placed(TOP_K, VirtualMesh(WORKERS))
    _, (_, of_two, *_) = placed(TOP_K, VirtualMesh(2))
    with pytest.raises(ValueError, match=r"the 4 workers along .data.; got \[\(2,\)\]"):
        step(params, of_two, *rest)


def test_a_loss_that_is_averaged_already_gives_the_gradient_of_the_average():
    def averaged(params, extra, batch):
        loss, rest = loss_of(params, extra, batch)
        return jax.lax.pmean(loss, "data"), rest

    for mesh in VirtualMesh(WORKERS), data_mesh(WORKERS):
        found, expected = trained("dense()", mesh, averaged)[0], trained("dense()", mesh)[0]
        assert_near(found, expected)


def loss_of_convolutions(params, extra, batch):
    """The same model, with a convolution along the inputs in front."""
    x, y = batch
    rows = jax.lax.conv(x[:, None], params["w"][None, None, :3, 0], (1,), "SAME")
    return loss_of(params, extra, (rows[:, 0], y))


def averaged_loss_of_convolutions(params, extra, batch):
    loss, rest = loss_of_convolutions(params, extra, batch)
    return jax.lax.pmean(loss, "data"), rest


@pytest.mark.parametrize("loss", [loss_of_convolutions, averaged_loss_of_convolutions])
def test_convolutions_give_the_numbers_of_as_many_devices(loss):
    found, expected = (trained(TOP_K, mesh, loss)[0] for mesh in (VirtualMesh(4), data_mesh(4)))
    assert_near(found, expected)


def groups(jaxpr):
    """The groups of each convolution."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "conv_general_dilated":
            yield equation.params["feature_group_count"] * equation.params["batch_group_count"]
        for inner in sub_jaxprs(equation.params):
            yield from groups(inner)


def test_convolutions_are_computed_one_worker_after_the_other():
    mesh = VirtualMesh(WORKERS)
    step, arguments = placed(TOP_K, mesh, loss_of_convolutions)
    assert set(groups(step.trace(*arguments).jaxpr.jaxpr)) == {1}

    optimizer, (params, _, extra, batch) = local_sgd(0.1, 3), arguments
    step = make_local_step(loss_of_convolutions, optimizer, mesh)
    arguments = params, init_state(optimizer, params, mesh), rows_of_workers(extra, mesh), batch
    assert set(groups(step.trace(*arguments).jaxpr.jaxpr)) == {1}


def test_convolutions_of_rows_that_workers_exchange_are_computed_at_once():
    params = {"k": RNG.standard_normal((3, 3, 1, 4), np.float32), "w": np.ones((4, 3), np.float32)}
    rows = RNG.standard_normal((16, 6, 6, 1), np.float32)

    def exchanged(params, batch):
        batch = lax.ppermute(batch, "data", [(i, (i + 1) % 4) for i in range(4)])
        names = ("NHWC", "HWIO", "NHWC")
        out = lax.conv_general_dilated(batch, params["k"], (1, 1), "SAME", dimension_numbers=names)
        return jnp.mean(jnp.square(out.mean((1, 2)) @ params["w"]))

    ends = []
    for mesh in (data_mesh(4), VirtualMesh(4)):
        optimizer = optax.chain(compress(dense()), optax.sgd(0.1))
        placed = replicate(params, mesh)
        step = make_train_step(exchanged, optimizer, mesh)
        state = init_state(optimizer, placed, mesh)
        ends.append(jax.device_get(step(placed, state, {}, shard_batch(rows, mesh))[0]))
    np.testing.assert_allclose(ends[0]["k"], ends[1]["k"], rtol=1e-5, atol=1e-6)


def test_memories_can_wait_in_host_memory():
    mesh, optimizer = VirtualMesh(WORKERS), optimizer_with(TOP_K)
    params, extra = replicate(PARAMS, mesh), replicate({"mean": np.zeros(50, np.float32)}, mesh)
    state = init_state(optimizer, params, mesh, memory_kind="pinned_host")
    step = make_train_step(loss_of, optimizer, mesh, micro_batches=2)
    for _ in range(STEPS):
        params, state, extra, metrics = step(params, state, extra, shard_batch(BATCH, mesh))
    assert {x.sharding.memory_kind for x in jax.tree.leaves(state)} == {"pinned_host", "device"}
    np.testing.assert_allclose(metrics["loss"], trained(TOP_K, mesh)[0][-1]["loss"], rtol=1e-5)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("axis_name", ["", 3, ("a", "b")])
def test_the_axis_has_one_name(axis_name):
    with pytest.raises(
        ValueError, match="axis_name is the name of the one axis of the workers, a text; got"
    ):
        VirtualMesh(WORKERS, axis_name)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_are_counted(workers):
    with pytest.raises(ValueError, match="workers is the number of workers that share one device"):
        VirtualMesh(workers)


def test_one_of_several_processes_is_refused(monkeypatch):
    monkeypatch.setattr(virtual, "joined_processes", lambda: 2)
    with pytest.raises(ValueError, match="2 processes are joined here; use data_mesh"):
        VirtualMesh(WORKERS)
