"""The plan: its parts add up, the choice, what it refuses, and real steps beside it."""

import inspect
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from subprocesses import free_port, joined, lines_of, run_together

import jaxcompress as jc
from jaxcompress.planning.plan import CANDIDATES

ROWS = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
TOP = jc.error_feedback(jc.top_k(0.01))


def loss_fn(params, batch):
    return jnp.mean((jnp.tanh(batch @ params["in"]) @ params["out"] - batch) ** 2)


def parameters():
    random = np.random.default_rng(1)
    shapes = {"in": (32, 48), "out": (48, 32)}
    return {k: jnp.asarray(0.1 * random.standard_normal(v), jnp.float32) for k, v in shapes.items()}


def optimizer(compressor):
    return optax.chain(jc.compress(compressor), optax.adam(1e-3))


def planned(mesh=None, links=None, loss=loss_fn, params=None, **given):
    mesh = jc.data_mesh(4) if mesh is None else mesh
    has_devices = isinstance(mesh, jax.sharding.Mesh)
    if params is None:
        params = jc.replicate(parameters(), mesh) if has_devices else parameters()
    batch = jc.shard_batch(ROWS, mesh) if has_devices else ROWS[:4]
    links = links or jc.ideal_links(1e8, 1e-4)
    defaults = {"candidates": [TOP], "repeats": 1, "least_kept": 0.0}
    return jc.plan(loss, optimizer, params, batch, mesh, links=links, **defaults | given)


@pytest.fixture(scope="module")
def found():
    return planned()


def test_a_step_is_the_sum_of_its_parts(found):
    assert found.workers == 4
    for one in found.options:
        assert one.exposed_ms == one.network_ms == found.links.ms(one.sent.collectives)
        assert one.step_ms == pytest.approx(found.gradient_ms + one.update_ms + one.exposed_ms)


def test_the_bytes_are_those_of_the_real_step(found):
    for one in found.options:
        chain, mesh = optimizer(one.compressor), jc.data_mesh(4)
        params = jc.replicate(parameters(), mesh)
        step = jc.make_train_step(loss_fn, chain, mesh)
        batch, state = jc.shard_batch(ROWS, mesh), jc.init_state(chain, params, mesh)
        asked, _ = jc.traffic(step, params, state, {}, batch)
        assert one.sent.collectives == asked.collectives
        one_worker = jax.eval_shape(chain.init, params)
        assert one.state_bytes == sum(
            x.size * x.dtype.itemsize for x in jax.tree.leaves(one_worker)
        )


def test_other_links_need_no_new_measurement(found):
    slow = found.over(jc.ideal_links(1e6))
    assert slow.dense.network_ms == pytest.approx(8e3 * found.dense.sent.wire_bytes / 1e6)
    assert [x.update_ms for x in slow.options] == [x.update_ms for x in found.options]
    assert slow.chosen.compressor is TOP


def test_a_mesh_without_devices_has_any_number_of_workers():
    many = planned(jc.VirtualMesh(64).abstract, gradient_ms=40.0)
    assert (many.workers, many.gradient_ms) == (64, 40.0)
    assert many.dense.sent.wire_bytes > planned(gradient_ms=40.0).dense.sent.wire_bytes
    with pytest.raises(ValueError, match="a mesh without devices, which takes no steps"):
        many.check()
    with pytest.raises(ValueError, match="Give links=ideal_links"):
        jc.plan(loss_fn, optimizer, parameters(), ROWS, jc.VirtualMesh(2).abstract)


def test_real_steps_are_taken_beside_the_plan():
    params = jc.replicate(parameters(), jc.data_mesh(4))
    found = planned(params=params)
    (dense, dense_ms), (top, top_ms) = found.check(found.options, steps=2)
    assert (dense, top) == found.options
    assert dense_ms > 0 and top_ms > 0
    # The steps donate copies.
    jax.tree.map(np.testing.assert_array_equal, params, parameters())
    with pytest.raises(ValueError, match="steps is the timed steps of each option"):
        found.check(steps=0)


def test_micro_batches_are_counted_as_often_as_they_run(monkeypatch):
    from jaxcompress.planning import plan as module

    rows = []

    def loss(params, batch):
        rows.append(len(batch))
        return loss_fn(params, batch)

    monkeypatch.setattr(module, "agreed_milliseconds", lambda run, repeats: 3.0)
    found = planned(micro_batches=2, loss=loss)
    # Two micro-batches of two rows each, of the worker's four.
    assert found.gradient_ms == 6 and set(rows) == {2}


def test_dense_is_always_compared_and_once():
    found = planned(candidates=[jc.top_k(0.5), jc.dense()], gradient_ms=1.0)
    assert [repr(one.compressor) for one in found.options] == ["dense()", "top_k(0.5)"]


def test_the_default_candidates_are_texts_of_the_notation():
    assert all(repr(jc.parse(repr(one))) == repr(one) for one in CANDIDATES)
    assert repr(CANDIDATES[0]) == "dense()"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gradient_ms": 0}, "gradient_ms is a time, above 0; got 0"),
        ({"overlap": 1.5}, "overlap is a share from 0 to 1; got 1.5"),
        ({"least_kept": -0.1}, "least_kept is a share from 0 to 1"),
        ({"network_share": 0}, "network_share is a share of the time, in .0, 1.; got 0"),
        ({"repeats": 0}, "repeats is the timed runs"),
        ({"micro_batches": 0}, "micro_batches is the number of parts"),
        ({"axis_name": "worker"}, "no 'worker'"),
        ({"overlap": 0.5, "micro_batches": 2}, "overlap=0.5 with micro_batches=2"),
        ({"candidates": ["top_k(0.1)"]}, "compressors to choose from; got 'top_k"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        planned(**arguments)


def test_meshes_of_other_kinds_are_refused():
    for mesh, message in (
        (jc.VirtualMesh(4), r"VirtualMesh\(8\).abstract"),
        (jc.hybrid_mesh({"data": -1, "fsdp": 2}), "shards one along 'fsdp'"),
    ):
        with pytest.raises(ValueError, match=message):
            jc.plan(loss_fn, optimizer, parameters(), ROWS, mesh, links=jc.ideal_links(1e9))


def test_a_loss_may_use_the_axis_of_the_workers():
    """As dropout does, whose masks differ between workers."""

    def loss(params, batch):
        key = jc.worker_key(jax.random.key(0))
        kept = jax.random.bernoulli(key, 0.5, batch.shape) + jax.lax.pmean(0.0, "data")
        return loss_fn(params, batch * kept)

    assert planned(loss=loss, candidates=[]).gradient_ms > 0


def test_candidates_that_need_more_than_gradients_are_refused():
    needy = jc.adaptive(jc.accuracy(10), jc.dense(), jc.top_k(0.1))
    with pytest.raises(ValueError, match=r"nothing but gradients; adaptive.* needs loss"):
        planned(candidates=[needy], gradient_ms=1.0)


def test_a_chain_in_place_of_the_function_that_makes_it_is_refused():
    mesh = jc.data_mesh(4)
    with pytest.raises(ValueError, match="optimizer is a function that makes the chain"):
        jc.plan(loss_fn, optax.sgd(0.1), parameters(), ROWS, mesh, links=jc.ideal_links(1e9))
    with pytest.raises(ValueError, match=r"Optax transformation, .* got dense\(\); write compress"):
        batch = jc.shard_batch(ROWS, mesh)
        jc.plan(loss_fn, lambda one: one, parameters(), batch, mesh, links=jc.ideal_links(1e9))


def test_candidates_may_be_an_iterator():
    plan = planned(candidates=iter([TOP]), gradient_ms=1.0)
    assert [option.compressor for option in plan.options[1:]] == [TOP]


def test_an_integer_parameter_is_refused_by_name():
    with pytest.raises(ValueError, match="params at 'steps' is int32"):
        planned(params=parameters() | {"steps": jnp.int32(0)})


def test_links_of_other_axes_are_refused():
    with pytest.raises(ValueError, match="Measure the mesh of the step"):
        planned(links=jc.ideal_links(1e9, axis_name="node"))


def test_a_batch_that_is_not_split_over_the_workers_is_refused():
    mesh = jc.data_mesh(4)
    for batch in (ROWS, jnp.asarray(ROWS), jc.replicate(ROWS, mesh)):
        with pytest.raises(ValueError, match=r"pass shard_batch\(batch, mesh, 'data'\)"):
            jc.plan(loss_fn, optimizer, parameters(), batch, mesh, links=jc.ideal_links(1e9))


def test_a_gradient_that_is_not_finite_is_refused():
    mesh = jc.data_mesh(4)
    batch = jc.shard_batch(np.full((4, 32), np.inf, np.float32), mesh)
    with pytest.raises(ValueError, match="the gradient of this batch is not finite"):
        jc.plan(loss_fn, optimizer, parameters(), batch, mesh, links=jc.ideal_links(1e9))


BODY = """
import sys, json
sys.path.insert(0, "tests/planning")
import test_plan
mesh = jaxcompress.data_mesh()
print(json.dumps(test_plan.plan_of_processes(mesh)))
"""


def plan_of_processes(mesh):
    """What this process finds; each has rows of its own."""
    rows = ROWS[jax.process_index() :: 2]
    params = jc.replicate(parameters(), mesh)
    batch = jc.shard_batch(rows, mesh)
    found = jc.plan(loss_fn, optimizer, params, batch, mesh, candidates=[TOP], repeats=2)
    numbers = [list(one) for one in found.options]
    checked = [ms for _, ms in found.check(found.options, steps=2)]
    return [repr(found.compressor), [one[2:] for one in numbers], checked]


def test_two_processes_make_the_same_plan():
    port = free_port()
    results = run_together([joined(BODY, process, 2, port) for process in range(2)])
    one, two = (json.loads(lines[-1]) for lines in lines_of(results))
    assert one == two


def test_what_keeps_too_little_of_the_gradient_is_not_chosen_by_default():
    signature = inspect.signature(jc.plan)
    found = planned(
        links=jc.ideal_links(1e4), least_kept=signature.parameters["least_kept"].default
    )
    assert found.chosen is found.dense and found.options[1].kept < 0.2
    assert f"{TOP!r} is faster, and excluded" in str(found)


def test_without_options_dense_and_the_choice_take_steps():
    slow = planned(links=jc.ideal_links(1e4))
    assert slow.chosen is not slow.dense
    assert [one for one, _ in slow.check(steps=1)] == [slow.dense, slow.chosen]
