"""The training step: local gradients, what is averaged, what is donated, and what must
not differ.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import FLOAT32, assert_same_bits
from jax.sharding import PartitionSpec as P
from optimizer_helpers import temporary_copies

from jaxcompress import (
    block_max,
    compress,
    data_mesh,
    dense,
    error_feedback,
    init_state,
    replicate,
    rows_of_workers,
    shard_batch,
    top_k,
)
from jaxcompress.distributed.step import local_value_and_grad, make_train_step

WORKERS, ROWS = 4, 8
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((ROWS, 5), np.float32), RNG.standard_normal((ROWS, 3), np.float32)
W = RNG.standard_normal((5, 3), np.float32)


def of_workers(x: np.ndarray, workers: int = WORKERS) -> np.ndarray:
    """A batch as its workers see it: (workers, rows, columns)."""
    return x.reshape(workers, -1, x.shape[1])


def numpy_gradient(x, y, w) -> np.ndarray:
    """Of ``mean((x w - y)^2)``, in float64."""
    x, y, w = (np.asarray(array, np.float64) for array in (x, y, w))
    return 2 * x.T @ (x @ w - y) / y.size


def squares(w, x, y):
    return jnp.mean(jnp.square(x @ w - y))


def loss_of(params, extra, batch):
    return squares(params["w"], *batch), (extra, {})


def start(
    loss_fn=loss_of,
    extra=None,
    workers=WORKERS,
    optimizer=None,
    axis_name="data",
    micro_batches=1,
):
    """The step and its arguments, placed."""
    mesh = data_mesh(workers, axis_name)
    optimizer = optimizer or optax.chain(compress(dense(), axis_name), optax.sgd(0.1))
    params = replicate({"w": W}, mesh)
    state = init_state(optimizer, params, mesh, axis_name)
    step = make_train_step(loss_fn, optimizer, mesh, axis_name, micro_batches)
    return step, (
        params,
        state,
        replicate({} if extra is None else extra, mesh),
        shard_batch((X, Y), mesh, axis_name),
    )


def gradients_by(value_and_grad, **check) -> np.ndarray:
    """Every worker's gradient, (workers, 5, 3)."""

    def one_worker(w, x, y):
        return value_and_grad(w, x, y)[1][None]

    run = jax.shard_map(
        one_worker,
        mesh=data_mesh(WORKERS),
        in_specs=(P(), P("data"), P("data")),
        out_specs=P("data"),
        **check,
    )
    return np.asarray(jax.jit(run)(W, X, Y))


def expected_gradients() -> np.ndarray:
    return np.stack(
        [numpy_gradient(x, y, W) for x, y in zip(of_workers(X), of_workers(Y), strict=True)]
    )


@pytest.mark.parametrize("check_vma", [True, False])
def test_local_gradients_equal_numpy_on_every_worker(check_vma):
    found = gradients_by(local_value_and_grad(squares), check_vma=check_vma)
    np.testing.assert_allclose(found, expected_gradients(), **FLOAT32)


def test_plain_gradients_of_replicated_parameters_would_be_the_sum():
    found = gradients_by(jax.value_and_grad(squares))
    total = np.broadcast_to(expected_gradients().sum(axis=0), found.shape)
    np.testing.assert_allclose(found, total, **FLOAT32)


def test_local_gradients_carry_the_loss_and_what_comes_with_it():
    def loss(w, x, y):
        return squares(w, x, y), {"rows": x}

    def one_worker(w, x, y):
        (value, aux), _ = local_value_and_grad(loss, has_aux=True)(w, x, y)
        return value[None], aux["rows"]

    specs = {"in_specs": (P(), P("data"), P("data")), "out_specs": (P("data"), P("data"))}
    values, rows = jax.jit(jax.shard_map(one_worker, mesh=data_mesh(WORKERS), **specs))(W, X, Y)
    of_each = np.square(of_workers(X) @ W - of_workers(Y)).mean(axis=(1, 2))
    np.testing.assert_allclose(values, of_each, **FLOAT32)
    np.testing.assert_array_equal(rows, X)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_dense_steps_are_gradient_descent_on_the_whole_batch(workers):
    step, (params, state, extra, batch) = start(workers=workers)
    w = W.astype(np.float64)
    for _ in range(3):
        params, state, extra, _ = step(params, state, extra, batch)
        w = w - 0.1 * numpy_gradient(X, Y, w)
    np.testing.assert_allclose(params["w"], w, **FLOAT32)


def test_any_optimizer_that_averages_and_any_axis_name_will_do():
    average = optax.stateless(lambda updates, params: jax.lax.pmean(updates, "workers"))
    step, arguments = start(optimizer=optax.chain(average, optax.sgd(0.1)), axis_name="workers")
    params, *_ = step(*arguments)
    np.testing.assert_allclose(params["w"], W - 0.1 * numpy_gradient(X, Y, W), **FLOAT32)


def test_loss_and_metrics_are_averages_over_the_workers():
    def loss(params, extra, batch):
        value, (extra, _) = loss_of(params, extra, batch)
        return value, (extra, {"largest": jnp.max(batch[0]), "rate": 0.5, "rows": len(batch[0])})

    step, arguments = start(loss)
    *_, metrics = step(*arguments)
    assert set(metrics) == {"loss", "largest", "rate", "rows"}
    np.testing.assert_allclose(metrics["loss"], np.square(X @ W - Y).mean(), **FLOAT32)
    np.testing.assert_allclose(metrics["largest"], of_workers(X).max(axis=(1, 2)).mean(), **FLOAT32)
    assert (float(metrics["rate"]), int(metrics["rows"])) == (0.5, ROWS // WORKERS)


def test_running_statistics_become_the_average_over_workers():
    def loss(params, extra, batch):
        x, y = batch
        running = {
            "mean": 0.9 * extra["mean"] + 0.1 * x.mean(axis=0),
            "var": 0.9 * extra["var"] + 0.1 * x.var(axis=0),
        }
        return squares(params["w"], x, y), (running, {})

    mean, var = RNG.standard_normal(5, np.float32), np.ones(5, np.float32)
    step, arguments = start(loss, {"mean": mean, "var": var})
    _, _, extra, _ = step(*arguments)
    np.testing.assert_allclose(extra["mean"], 0.9 * mean + 0.1 * X.mean(axis=0), **FLOAT32)
    # Local statistics: the variance within each worker's rows, averaged, is not that of the whole
    # batch.
    within = of_workers(X).var(axis=1).mean(axis=0)
    np.testing.assert_allclose(extra["var"], 0.9 * var + 0.1 * within, **FLOAT32)
    assert extra["mean"].sharding.is_fully_replicated


def test_integers_and_random_keys_of_extra_pass_through():
    def loss(params, extra, batch):
        value, _ = loss_of(params, {}, batch)
        key, _ = jax.random.split(extra["key"])
        return value, ({"count": extra["count"] + 1, "key": key}, {})

    key = jax.random.key(3)
    step, arguments = start(loss, {"count": jnp.int32(2**30 + 1), "key": key})
    _, _, extra, _ = step(*arguments)
    # A float32 average would have rounded the count.
    assert_same_bits(extra, {"count": jnp.int32(2**30 + 2), "key": jax.random.split(key)[0]})


@pytest.mark.parametrize("name", ["loss", "applied"])
def test_a_metric_may_not_take_the_place_of_the_steps_own(name):
    def loss(params, extra, batch):
        value, _ = loss_of(params, {}, batch)
        return value, (extra, {name: value})

    step, arguments = start(loss, {})
    with pytest.raises(ValueError, match=f"a metric '{name}', which is the step's own"):
        step.trace(*arguments)


@pytest.mark.parametrize("shape", ["loss", "loss, extra", "loss, metrics of another kind"])
def test_a_loss_function_of_another_form_is_told_which(shape):
    def loss(params, extra, batch):
        value, _ = loss_of(params, {}, batch)
        return {"loss": value, "loss, extra": (value, {})}.get(shape, (value, (extra, None)))

    step, arguments = start(loss, {})
    with pytest.raises(ValueError, match=r"-> \(loss, \(extra, metrics\)\), where extra and"):
        step.trace(*arguments)


@pytest.mark.parametrize("with_metrics", [False, True])
def test_a_loss_function_of_parameters_and_batch_will_do(with_metrics):
    def loss(params, batch, scale=1.0):
        found, (_, metrics) = loss_of(params, {}, batch)
        return (found * scale, metrics) if with_metrics else found * scale

    step, (params, state, extra, batch) = start(loss_of, {})
    *_, wanted = step(params, state, extra, batch)
    step, (params, state, _, batch) = start(loss, {})
    *_, extra, found = step(params, state, {}, batch)
    assert extra == {}
    assert found["loss"] == wanted["loss"]
    assert set(found) == (set(wanted) if with_metrics else {"loss"})


def test_what_a_loss_function_takes_by_name_is_no_third_argument():
    def loss(params, batch, train=True, **options):
        assert train is True and not options
        return loss_of(params, {}, batch)[0]

    step, (params, state, _, batch) = start(loss, {})
    *_, found = step(params, state, {}, batch)
    assert set(found) == {"loss"}


def test_a_loss_function_of_one_argument_is_refused_before_anything_is_traced():
    with pytest.raises(
        ValueError, match=r"loss function \(params, extra, batch\).*takes \(params\)"
    ):
        make_train_step(lambda params: 0.0, compress(top_k(0.1)), data_mesh(2))


@pytest.mark.parametrize(
    "wrong", [lambda x: None, lambda x: jnp.stack([x, x]), lambda x: [x], lambda x: x.astype(int)]
)
def test_a_loss_that_is_no_scalar_is_refused(wrong):
    step, arguments = start(lambda params, batch: wrong(loss_of(params, {}, batch)[0]), {})
    with pytest.raises(ValueError, match=r"or \(params, batch\) -> loss or .*no scalar"):
        step.trace(*arguments)


def test_without_donation_a_step_can_be_repeated():
    _, (params, state, extra, batch) = start(loss_of, {})
    optimizer, mesh = optax.chain(compress(dense()), optax.sgd(0.1)), data_mesh(WORKERS)
    step = make_train_step(loss_of, optimizer, mesh, donate=False)
    first, again = (step(params, state, extra, batch)[3] for _ in range(2))
    assert first["loss"] == again["loss"]


def test_a_compressor_in_place_of_an_optimizer_is_refused():
    inner, mesh = error_feedback(top_k(0.5)), data_mesh(2)
    message = r"optimizer is an Optax transformation, .* got error_feedback.*; write compress"
    with pytest.raises(ValueError, match=message):
        make_train_step(lambda params, batch: 0.0, inner, mesh)
    with pytest.raises(ValueError, match=message):
        init_state(inner, {"w": jnp.zeros(3)}, mesh)


def test_parameters_in_place_of_an_optimizer_are_refused():
    params, mesh = {"w": jnp.zeros(3)}, data_mesh(2)
    message = r"optimizer is an Optax transformation, .* got a dict\."
    with pytest.raises(ValueError, match=message):
        make_train_step(lambda params, batch: 0.0, params, mesh)
    with pytest.raises(ValueError, match=message):
        init_state(params, optax.sgd(0.1), mesh)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mesh": None}, r"mesh is the mesh of the workers, from data_mesh\(\) .*; got None"),
        ({"axis_name": "model"}, "the mesh has the axes .*, and no 'model'"),
        ({"donate": 1}, "donate is True or False; got 1"),
    ],
)
def test_arguments_are_refused_before_anything_is_traced(given, message):
    arguments = {"mesh": data_mesh(2)} | given
    with pytest.raises(ValueError, match=message):
        make_train_step(loss_of, optax.sgd(0.1), **arguments)


def test_an_integer_parameter_is_refused_by_name():
    step, (params, state, extra, batch) = start(loss_of, {})
    with pytest.raises(ValueError, match=r"params at 'steps' is int32.* in extra"):
        step.trace({**params, "steps": jnp.int32(0)}, state, extra, batch)


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize(
    ("returned", "after"),
    [
        (lambda extra: {}, "nothing"),
        (lambda extra: {"mean": extra["mean"].sum()}, r"float32\[\]"),
        (lambda extra: {"mean": extra["mean"].astype(jnp.int32)}, r"int32\[3\]"),
    ],
)
def test_extra_of_another_kind_is_refused(micro_batches, returned, after):
    def loss(params, extra, batch):
        return loss_of(params, {}, batch)[0], (returned(extra), {})

    step, arguments = start(loss, {"mean": jnp.zeros(3)}, micro_batches=micro_batches)
    with pytest.raises(ValueError, match=f"'mean', and returned {after}"):
        step.trace(*arguments)


def test_rows_of_workers_are_no_extra():
    step, (params, state, _, batch) = start()
    extra = rows_of_workers({"mean": jnp.zeros(3)}, data_mesh(WORKERS))
    with pytest.raises(ValueError, match=r"got rows of workers. Give mean_over_workers"):
        step.trace(params, state, extra, batch)


def test_what_is_complex_in_extra_is_averaged():
    def loss(params, extra, batch):
        return loss_of(params, {}, batch)[0], ({"turned": batch[1][0, 0] * (1 + 2j)}, {})

    step, arguments = start(loss, {"turned": jnp.zeros((), jnp.complex64)})
    *_, extra, _ = step(*arguments)
    first = of_workers(Y)[:, 0, 0].mean()
    np.testing.assert_allclose(extra["turned"], first * (1 + 2j), rtol=1e-6)


def test_integers_that_differ_between_workers_are_refused_by_name():
    def differing_extra(params, extra, batch):
        value, _ = loss_of(params, {}, batch)
        return value, ({"seen": {"positive": jnp.sum(batch[1] > 0)}}, {})

    def differing_metric(params, extra, batch):
        value, _ = loss_of(params, {}, batch)
        return value, (extra, {"correct": jnp.sum(batch[1] > 0)})

    advice = "is int32 and differs between workers; only floating and complex arrays"
    for loss, extra, place in [
        (differing_extra, {"seen": {"positive": jnp.int32(0)}}, "extra at 'seen/positive'"),
        (differing_metric, {}, "metrics at 'correct'"),
    ]:
        step, arguments = start(loss, extra)
        with pytest.raises(ValueError, match=f"{place} {advice}"):
            step.trace(*arguments)


def test_parameters_state_and_extra_are_donated_and_the_batch_is_not():
    optimizer = optax.chain(compress(error_feedback(top_k(0.1))), optax.adam(0.1))
    step, (params, state, extra, batch) = start(
        lambda params, extra, batch: (loss_of(params, {}, batch)[0], ({"x": extra["x"] + 1}, {})),
        {"x": jnp.zeros(3)},
        optimizer=optimizer,
    )
    new = step(params, state, extra, batch)
    # The count of bits is written and never read, so it is no input of the compiled step.
    read = (params, state[0]._replace(bits=None), state[1:], extra)
    assert all(x.is_deleted() for x in jax.tree.leaves(read))
    assert not any(x.is_deleted() for x in jax.tree.leaves((new, batch)))


@pytest.mark.parametrize("place", [0, 1])
def test_a_donated_argument_is_refused_before_jax_sees_it(place):
    # On several CPU devices JAX ends the process by a segmentation fault.
    optimizer = optax.chain(compress(error_feedback(top_k(0.1))), optax.adam(0.1))
    step, (params, state, extra, batch) = start(loss_of, {}, optimizer=optimizer)
    used = [params, state]
    new = [*step(params, state, extra, batch)[:2]]
    new[place] = used[place]
    with pytest.raises(
        ValueError, match=r"gone, (float32|key).* earlier step has reused its memory"
    ):
        step(*new, extra, batch)


def test_the_error_memory_is_written_in_place():
    """The compiled step holds no second memory beside the donated one, nor the sum of gradient and
    memory.
    """
    assert temporary_copies(compress(error_feedback(block_max(128)))) < 0.2


def test_a_step_compiles_once(caplog):
    optimizer = optax.chain(compress(error_feedback(top_k(0.1))), optax.adam(0.1))
    step, (params, state, extra, batch) = start(optimizer=optimizer)
    with jax.log_compiles():
        for _ in range(3):
            params, state, extra, _ = step(params, state, extra, batch)
    assert (
        len([record for record in caplog.messages if record.startswith("Compiling jit(step)")]) == 1
    )


def test_replicas_stay_equal_to_the_last_bit():
    optimizer = optax.chain(compress(error_feedback(top_k(0.1))), optax.adam(0.1))
    step, (params, state, extra, batch) = start(optimizer=optimizer)
    for _ in range(5):
        params, state, extra, _ = step(params, state, extra, batch)
    for x in jax.tree.leaves((params, state[1:])):
        assert len({np.asarray(shard.data).tobytes() for shard in x.addressable_shards}) == 1


def test_an_optimizer_that_does_not_average_is_refused():
    step, arguments = start(optimizer=optax.sgd(0.1))
    with pytest.raises(
        ValueError, match="updates at 'w' would differ between workers after this step"
    ):
        step.trace(*arguments)
