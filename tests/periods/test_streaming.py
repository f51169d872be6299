"""Streaming: trajectories in NumPy, what an average sends, and that steps do not wait for it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import FLOAT32
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxcompress import (
    VirtualMesh,
    compress,
    data_mesh,
    dense,
    error_feedback,
    hybrid_mesh,
    init_state,
    local_updates,
    make_flush,
    make_local_step,
    make_streaming_average,
    on_shards,
    qsgd,
    replicate,
    reshard_workers,
    rows_of_workers,
    shard_batch,
    streaming,
    top_k,
    traffic,
)
from jaxcompress.periods.streaming import fragment_masks

WORKERS, RATE = 4, 0.5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 6), np.float32)
Y = RNG.standard_normal((24, 30), np.float32)
PARAMS = {
    "w": RNG.standard_normal((6, 30), np.float32) / 3,
    "v": RNG.standard_normal((30, 30), np.float32) / 6,
}


def loss_of(params, batch):
    x, y = batch
    return jnp.mean(jnp.square(x @ params["w"] @ params["v"] - y))


def nesterov():
    return optax.sgd(0.7, momentum=0.9, nesterov=True)


def two_fragments(link=None, outer=None):
    return streaming(optax.sgd(RATE), outer or nesterov(), link or compress(dense()), fragments=2)


def sparse():
    return compress(error_feedback(top_k(0.1)), min_compression_rate=0)


class Training:
    """The state of a run, its step, and its averages."""

    def __init__(self, optimizer, mesh=None, **options):
        """`options` are those of `make_streaming_average`."""
        self.mesh, self.optimizer = mesh or data_mesh(WORKERS), optimizer
        params = replicate(PARAMS, self.mesh)
        state = init_state(optimizer, params, self.mesh)
        self.state = params, state, rows_of_workers({}, self.mesh)
        self.step = make_local_step(loss_of, optimizer, self.mesh)
        self.average = make_streaming_average(loss_of, optimizer, self.mesh, **options)
        self.batch = shard_batch((X, Y), self.mesh)

    def steps(self, number, **more):
        """Takes steps without an average."""
        for _ in range(number):
            *self.state, self.metrics = self.step(*self.state, self.batch, **more)

    def averages(self, fragment, steps=0, **more):
        """Averages a fragment during so many steps."""
        batches = [self.batch] * steps
        *self.state, self.metrics = self.average(*self.state, batches, fragment=fragment, **more)

    def flush(self):
        """Averages all fragments."""
        self.state = make_flush(self.optimizer, self.mesh)(*self.state)

    @property
    def anchor(self):
        """The parameters of the training step."""
        return jax.device_get(self.state[0])

    @property
    def own(self):
        """Each worker's parameters, (workers, …)."""
        return jax.device_get(self.state[1].params.value)


def close(found, expected):
    for name in PARAMS:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=2e-6)


def trajectory(rounds, delay, mixing):
    """The anchor and the workers' own parameters after each round, in NumPy, in float64."""
    inputs, targets = (z.reshape(WORKERS, -1, z.shape[1]).astype(float) for z in (X, Y))
    anchor = {name: x.astype(float) for name, x in PARAMS.items()}
    own = [dict(anchor) for _ in range(WORKERS)]
    momentum = {name: np.zeros(x.shape) for name, x in anchor.items()}

    def step():
        for w, (x, y) in enumerate(zip(inputs, targets, strict=True)):
            hidden = x @ own[w]["w"]
            error = 2 * (hidden @ own[w]["v"] - y) / y.size
            grads = {"w": x.T @ (error @ own[w]["v"].T), "v": hidden.T @ error}
            own[w] = {name: own[w][name] - RATE * grads[name] for name in PARAMS}

    for number in range(rounds):
        step()
        step()
        name = ("v", "w")[number % 2]  # the larger array is the first fragment
        drift = np.mean([anchor[name] - one[name] for one in own], axis=0)
        momentum[name] = 0.9 * momentum[name] + drift
        anchor = anchor | {name: anchor[name] - 0.7 * (drift + 0.9 * momentum[name])}
        for _ in range(delay):
            step()
        for one in own:
            one[name] = mixing * one[name] + (1 - mixing) * anchor[name]
        yield anchor, {name: np.stack([one[name] for one in own]) for name in PARAMS}


@pytest.mark.parametrize(("delay", "mixing"), list(itertools.product([0, 1, 2], [0.0, 0.5])))
def test_the_trajectory_is_that_of_numpy(delay, mixing):
    training = Training(two_fragments(), mixing=mixing)
    for number, (anchor, own) in enumerate(trajectory(4, delay, mixing)):
        training.steps(2)
        training.averages(number % 2, delay)
        close(training.anchor, anchor)
        close(training.own, own)


def test_one_fragment_without_delay_and_mixing_is_local_updates():
    whole = Training(local_updates(optax.adam(0.05), nesterov(), sparse(), 3))
    one = Training(streaming(optax.adam(0.05), nesterov(), sparse(), 1), mixing=0)
    for _ in range(3):
        whole.steps(3)
        one.steps(3)
        one.averages(0)
        for found, expected in ((one.anchor, whole.anchor), (one.own, whole.own)):
            for name in PARAMS:
                np.testing.assert_allclose(found[name], expected[name], **FLOAT32)


def test_the_other_fragment_and_the_steps_of_others_stay():
    training = Training(two_fragments(), mixing=0.5)
    training.steps(3)
    before = training.own
    training.averages(0)
    assert np.array_equal(training.anchor["w"], PARAMS["w"])
    assert np.array_equal(training.own["w"], before["w"])
    assert not np.array_equal(training.anchor["v"], PARAMS["v"])
    np.testing.assert_allclose(
        training.own["v"], 0.5 * before["v"] + 0.5 * training.anchor["v"], **FLOAT32
    )
    copies = [np.asarray(x.data) for x in training.state[0]["v"].addressable_shards]
    assert all(np.array_equal(x, copies[0]) for x in copies)


def test_steps_send_nothing_and_each_average_its_fragment_alone():
    training = Training(two_fragments())
    arguments = *training.state, [training.batch] * 2
    for found in traffic(training.step, *training.state, training.batch):
        assert found.collectives == ()
    for fragment, name in enumerate(("v", "w")):
        for found in traffic(training.average, *arguments, fragment):
            assert found.wire_bytes == 1.5 * (PARAMS[name].nbytes + 4)


@pytest.mark.parametrize("link", [compress(dense()), sparse()])
def test_no_step_waits_for_the_average(link):
    """What the steps give, with everything else left out, communicates nothing."""
    training = Training(two_fragments(link))

    def metrics(*arguments):
        return training.average(*arguments, 0)[3]

    arguments = *training.state, [training.batch] * 2
    _, compiled = traffic(jax.jit(metrics), *arguments)
    assert compiled.collectives == ()


def test_nothing_is_lost_with_an_error_memory():
    training = Training(two_fragments(sparse(), optax.sgd(1.0)), mixing=0)
    drifts = np.zeros(PARAMS["v"].shape)
    for _ in range(4):
        training.steps(2)
        drifts += np.mean(training.anchor["v"] - training.own["v"], axis=0)
        training.averages(0)
    memory = [x for x in jax.tree.leaves(training.state[1].sending[0]) if x.shape == (4, 30, 30)]
    waiting = np.mean(memory[0], axis=0)
    np.testing.assert_allclose(PARAMS["v"] - training.anchor["v"] + waiting, drifts, atol=1e-5)
    assert np.abs(waiting).max() > 0


def test_virtual_workers_take_the_same_steps():
    virtual, real = (Training(two_fragments(sparse()), mesh) for mesh in (VirtualMesh(4), None))
    for training in (virtual, real):
        training.steps(2)
        training.averages(0, 2)
        training.averages(1, 1)
    close(virtual.anchor, real.anchor)
    close(virtual.own, real.own)
    assert virtual.metrics[0]["loss"].shape == (4,)


def test_a_worker_of_weight_zero_adds_nothing_and_one_that_is_not_finite_starts_from_the_anchor():
    inner = optax.sgd(RATE, momentum=0.5)
    optimizer = streaming(inner, optax.sgd(1.0), compress(dense()), fragments=2)
    training = Training(optimizer, mixing=0.5)
    training.steps(2)
    params, state, extra = training.state
    own = {name: x.at[3].set(np.nan) for name, x in state.params.value.items()}
    training.state = params, state._replace(params=type(state.params)(own)), extra
    before = training.own
    training.averages(0, weight=np.array([1, 1, 0, 1], np.float32))
    np.testing.assert_allclose(training.anchor["v"], before["v"][:2].mean(axis=0), **FLOAT32)
    np.testing.assert_array_equal(training.own["v"][3], training.anchor["v"])
    assert np.isfinite(training.own["v"]).all()
    for momentum in jax.tree.leaves(training.state[1].inner.value):
        assert [bool((x != 0).any()) for x in np.array(momentum)] == [True, True, True, False]


def test_a_flush_makes_all_equal_and_is_for_steps_that_were_not_averaged():
    training = Training(two_fragments(outer=optax.sgd(1.0)))
    training.steps(3)
    mean = {name: x.mean(axis=0) for name, x in training.own.items()}
    training.flush()
    close(training.anchor, mean)
    for name in PARAMS:
        assert all(np.array_equal(x, training.anchor[name]) for x in training.own[name])
    before = training.anchor
    training.flush()
    close(training.anchor, before)


def test_another_number_of_workers_keeps_the_mean():
    training = Training(two_fragments(sparse()))
    training.steps(2)
    training.averages(0, 1)
    fewer = reshard_workers(training.state[1], 2)
    for name in PARAMS:
        found = np.asarray(fewer.params.value[name])
        assert found.shape[0] == 2
        np.testing.assert_allclose(
            found.mean(axis=0), training.own[name].mean(axis=0), rtol=1e-6, atol=1e-6
        )


def test_fragments_are_of_about_one_size_and_each_array_is_in_one():
    shapes = {str(n): jax.ShapeDtypeStruct((n,), jnp.float32) for n in (100, 60, 50, 40, 30, 20, 1)}
    masks = fragment_masks(shapes, 3)
    assert [sum(one[name] for one in masks) for name in shapes] == [1] * len(shapes)
    sizes = [sum(shapes[name].shape[0] for name in one if one[name]) for one in masks]
    assert sum(sizes) == 301
    assert max(sizes) - min(sizes) <= 20


def test_fragments_draw_different_random_numbers():
    optimizer = streaming(optax.sgd(0.1), nesterov(), compress(qsgd(8)), 2)
    first, second = Training(optimizer).state[1].sending
    assert not np.array_equal(*(jax.random.key_data(each.key) for each in (first, second)))


@pytest.mark.usefixtures("as_users_run_it")
def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="streaming has 3 fragments, and the model has 2 arrays"):
        Training(streaming(optax.sgd(0.1), nesterov(), compress(dense()), 3))
    with pytest.raises(ValueError, match="fragments is the number of parts"):
        streaming(optax.sgd(0.1), nesterov(), compress(dense()), 0)
    with pytest.raises(ValueError, match="streaming sends in average alone"):
        Training(streaming(compress(dense()), nesterov(), compress(dense()), 1))
    for mixing in (1.0, "half", None):
        with pytest.raises(ValueError, match="mixing is the share"):
            Training(two_fragments(), mixing=mixing)
    training = Training(two_fragments())
    with pytest.raises(ValueError, match="fragment is one of 2, counted from 0; got 2"):
        training.averages(2)
    with pytest.raises(ValueError, match="fragment is the number of a fragment"):
        training.averages(True)
    other = Training(local_updates(optax.sgd(0.1), nesterov(), compress(dense()), 3))
    with pytest.raises(ValueError, match="make_streaming_average is a streaming"):
        other.averages(0)
    for batches in (training.batch, None, {"x": X}):
        with pytest.raises(ValueError, match=r"batches is a list .* as in \[batch\]; got"):
            training.average(*training.state, batches, fragment=0)


def test_a_state_of_another_kind_or_with_other_fragments_is_refused():
    one, two = (streaming(optax.sgd(0.1), nesterov(), compress(dense()), n) for n in (1, 2))
    training = Training(one)
    training.optimizer = two
    average = make_streaming_average(loss_of, two, training.mesh)
    with pytest.raises(ValueError, match=r"made for 1 fragments, .* has 2. Take fragments=1"):
        average(*training.state, [], fragment=0)
    with pytest.raises(ValueError, match="made for 1 fragments"):
        training.flush()
    local = local_updates(optax.sgd(0.1), nesterov(), compress(dense()), 3)
    step = make_local_step(loss_of, local, training.mesh)
    with pytest.raises(ValueError, match="state is StreamingState, and that of local_updates is a"):
        step(*training.state, training.batch)


def test_a_flush_after_an_average_without_steps_makes_workers_equal():
    training = Training(two_fragments(), mixing=0.5)
    training.steps(3)
    training.flush()
    training.averages(0)  # the outer momentum moves the anchor
    training.flush()
    for name, x in training.anchor.items():
        np.testing.assert_allclose(
            training.own[name], np.broadcast_to(x, (WORKERS, *x.shape)), rtol=1e-6, atol=1e-7
        )


def test_sharded_models_are_refused():
    mesh = hybrid_mesh({"data": 4, "fsdp": 2})
    params = jax.device_put(PARAMS, NamedSharding(mesh, P(None, "fsdp")))
    training = Training(two_fragments(), mesh)
    with pytest.raises(ValueError, match="streaming takes whole parameters, and XLA shards"):
        training.steps(1)
    link = on_shards(compress(dense()), params)
    with pytest.raises(ValueError, match="streaming takes no sharded model: take local_updates"):
        init_state(two_fragments(link), params, mesh)
