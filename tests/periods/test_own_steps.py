"""One local step from the first state, or a flush: weights, extra, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from autoencoder import PARAMS, X, predict
from jax import lax
from jax.sharding import PartitionSpec as P

from jaxcompress import (
    VirtualMesh,
    compress,
    data_mesh,
    dense,
    expand_worker_axis,
    init_state,
    local_sgd,
    local_updates,
    make_flush,
    make_local_step,
    replicate,
    rows_of_workers,
    shard_batch,
    squeeze_worker_axis,
    state_specs,
    worker_params,
)


def mean_of_squares(params, batch):
    return jnp.mean(jnp.square(predict(params, batch) - batch))


class Start:
    """A state before the first step, and one step from it."""

    def __init__(self, mesh, period=100, inner=None, extra=None, loss=mean_of_squares):
        link = compress(dense())
        self.optimizer = local_updates(inner or optax.sgd(0.1), optax.sgd(1.0), link, period)
        self.mesh, self.params = mesh, replicate(PARAMS, mesh)
        self.state = init_state(self.optimizer, self.params, mesh)
        self.extra = rows_of_workers({} if extra is None else extra, mesh)
        self.step = make_local_step(loss, self.optimizer, mesh)

    def take(self, rows=X, **more):
        """Takes the step."""
        found = self.step(self.params, self.state, self.extra, shard_batch(rows, self.mesh), **more)
        self.params, self.state, self.extra, _ = found
        return self

    def flush(self, **more):
        """What a flush returns."""
        flush = make_flush(self.optimizer, self.mesh)
        return flush(self.params, self.state, self.extra, **more)


def test_a_flush_weights_drifts_as_the_end_of_a_period_does():
    broken, weight = X.copy(), np.float32([1, 1, 1, 0])
    broken[12:] *= 50  # the rows of the last worker
    ended = Start(VirtualMesh(4), period=1).take(broken, weight=weight).params
    flushed = Start(VirtualMesh(4)).take(broken, weight=weight).flush(weight=weight)[0]
    for name, x in ended.items():
        np.testing.assert_allclose(flushed[name], x, rtol=1e-6, atol=1e-7)


def test_a_step_of_your_own_takes_gradients_at_a_workers_own_parameters():
    start, own = (Start(data_mesh(4), period=2) for _ in range(2))
    specs = state_specs(own.state)

    def local(params, opt_state, batch):
        opt_state = squeeze_worker_axis(opt_state)
        grads = jax.grad(mean_of_squares)(worker_params(opt_state), batch)
        updates, opt_state = own.optimizer.update(grads, opt_state, params, weight=1.0)
        return optax.apply_updates(params, updates), expand_worker_axis(opt_state)

    step = jax.jit(
        jax.shard_map(
            local, mesh=own.mesh, in_specs=(P(), specs, P("data")), out_specs=(P(), specs)
        )
    )
    batch, params, state = shard_batch(X, own.mesh), own.params, own.state
    for _ in range(3):
        start.take()
        params, state = step(params, state, batch)
        for name, x in start.params.items():
            np.testing.assert_allclose(params[name], x, rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="Chains with compress take make_train_step"):
        worker_params(optax.sgd(0.1).init(PARAMS))


def test_a_flush_of_other_workers_or_of_arrays_that_are_gone_is_refused():
    start = Start(VirtualMesh(8)).take()
    start.mesh = VirtualMesh(4)
    with pytest.raises(ValueError, match="first axis of the 4 workers"):
        start.flush()
    start.mesh, gone = VirtualMesh(8), (start.params, start.state, start.extra)
    start.take()
    start.params, start.state, start.extra = gone
    with pytest.raises(ValueError, match="an array that the step was given is gone"):
        start.flush()


def test_a_loss_averaged_over_workers_gives_the_same_steps_on_one_device():
    def averaged(params, batch):
        return lax.pmean(params["w"] * batch.mean(), "data")

    ends = []
    for mesh in (data_mesh(4), VirtualMesh(4)):
        optimizer = local_sgd(1.0, period=1)
        params = replicate({"w": np.float32(0)}, mesh)
        state, extra = init_state(optimizer, params, mesh), rows_of_workers({}, mesh)
        step = make_local_step(averaged, optimizer, mesh)
        ends.append(step(params, state, extra, shard_batch(np.ones((4, 1), np.float32), mesh))[0])
    assert [float(end["w"]) for end in ends] == [-1, -1]


def test_a_skipped_step_leaves_integer_state_and_counts_on():
    def codes(scale=0.05):
        def update(grads, state, params=None):
            count, old = state
            new = jax.tree.map(lambda code, g: 0.9 * code * scale + g, old, grads)
            stored = jax.tree.map(
                lambda x: jnp.clip(jnp.round(x / scale), -127, 127).astype(jnp.int8), new
            )
            return jax.tree.map(lambda x: -0.1 * x, new), (count + 1, stored)

        def init(params):
            return jnp.int32(0), jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.int8), params)

        return optax.GradientTransformation(init, update)

    start = Start(VirtualMesh(4), inner=codes()).take()
    _, before = jax.device_get(start.state.inner.value)
    broken = X.copy()
    broken[0] = np.nan
    count, after = jax.device_get(start.take(broken).state.inner.value)
    np.testing.assert_array_equal(count, 2)
    assert before["up"][0].any()
    np.testing.assert_array_equal(after["up"][0], before["up"][0])
    assert (after["up"][1] != before["up"][1]).any()


def test_the_mean_of_narrow_extra_does_not_overflow():
    def loss(params, extra, batch):
        return mean_of_squares(params, batch), (extra, {})

    extra = {"large": np.full(3, 60_000, np.float16)}
    _, _, found = Start(VirtualMesh(4), extra=extra, loss=loss).take().flush()
    np.testing.assert_array_equal(found.value["large"], np.full((4, 3), 60_000, np.float16))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            {"mean": jnp.zeros(())},
            r"given float32\[8\] as extra at 'mean', and returned float32\[\]",
        ),
        ({"mean": jnp.zeros(8), "more": jnp.zeros(2)}, r"given nothing as extra at 'more'"),
        ({"mean": jnp.zeros(8, jnp.int32)}, r"and returned int32\[8\]"),
    ],
)
def test_extra_of_another_kind_is_refused(returned, message):
    def loss(params, extra, batch):
        return mean_of_squares(params, batch), (returned, {})

    start = Start(VirtualMesh(4), extra={"mean": np.zeros(8, np.float32)}, loss=loss)
    with pytest.raises(ValueError, match=message):
        start.take()


@pytest.mark.parametrize("extra", [{}, None])
def test_extra_without_rows_is_refused(extra):
    start = Start(VirtualMesh(4))
    start.extra = extra
    for call in (start.take, start.flush):
        with pytest.raises(ValueError, match=r"rows_of_workers\(extra, mesh\) makes it"):
            call()


@pytest.mark.parametrize("weight", [None, np.ones(3), np.ones((4, 1))])
def test_weights_of_another_shape_are_refused(weight):
    with pytest.raises(ValueError, match=r"one for each of the 4 workers, \(4,\); got"):
        Start(VirtualMesh(4)).take(weight=weight)


def test_what_is_no_optimizer_is_refused_at_once():
    for make in (
        lambda: make_local_step(mean_of_squares, "sgd", data_mesh(4)),
        lambda: make_flush(None, data_mesh(4)),
    ):
        with pytest.raises(
            ValueError, match="optimizer is an Optax transformation, such as local_up"
        ):
            make()
