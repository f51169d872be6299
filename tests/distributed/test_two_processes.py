"""The same training on one device, on two devices of one process, and on two processes joined by gloo."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from helpers import assert_close
from processes import free_port, joined, run_together

import jaxcompress

WORKERS, ROWS, STEPS = 2, 32, 6
COMPRESSORS = ["error_feedback(top_k(0.1))", "error_feedback(power_sgd(2))", "error_feedback(qsgd(4))"]

# Every process writes its result; they share this file's functions and nothing else.
PROGRAM = """
import sys
sys.path.insert(0, "tests/distributed")
import test_two_processes
test_two_processes.save_all({path!r})
"""


def initial_parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"kernel": (16, 24), "bias": (24,)}
    return {name: 0.3 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((STEPS, ROWS, columns), np.float32) for columns in (16, 24))
    return list(zip(x, y, strict=True))


def loss_of(params, extra, batch):
    x, y = batch
    return jnp.mean(jnp.square(jnp.tanh(x @ params["kernel"] + params["bias"]) - y)), (extra, {})


def optimizer_of(expression: str) -> optax.GradientTransformation:
    return optax.chain(jaxcompress.compress(jaxcompress.parse(expression)), optax.sgd(0.3, momentum=0.9))


def train(expression: str) -> dict[str, np.ndarray]:
    """The parameters after a few steps over two workers: devices of this process, or one of each of two processes."""
    mesh, optimizer = jaxcompress.data_mesh(WORKERS), optimizer_of(expression)
    params = jaxcompress.replicate(initial_parameters(), mesh)
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(loss_of, optimizer, mesh)
    rows = slice(
        jax.process_index() * ROWS // jax.process_count(), (jax.process_index() + 1) * ROWS // jax.process_count()
    )
    extra = {}
    for x, y in batches():
        batch = jaxcompress.shard_batch((x[rows], y[rows]), mesh)
        params, state, extra, _ = step(params, state, extra, batch)
    return {name: np.asarray(x.addressable_shards[0].data) for name, x in params.items()}


def train_on_one_device(expression: str) -> dict[str, np.ndarray]:
    """The same steps with two virtual workers, by `vmap`, on one device."""
    optimizer = optimizer_of(expression)
    params = jax.tree.map(jnp.asarray, initial_parameters())
    is_per_worker = lambda node: isinstance(node, jaxcompress.PerWorker)  # noqa: E731
    state = jaxcompress.init_state(optimizer, params, jaxcompress.data_mesh(WORKERS))
    # Off its two devices: `vmap` runs on one.
    state = jax.device_put(state, jax.devices()[0])
    axes = jax.tree.map(lambda node: 0 if is_per_worker(node) else None, state, is_leaf=is_per_worker)

    def step(params, state, batch):
        def one_worker(state, batch):
            grads = jax.grad(lambda params: loss_of(params, {}, batch)[0])(params)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        batch = jax.tree.map(lambda x: x.reshape(WORKERS, ROWS // WORKERS, -1), batch)
        return jax.vmap(one_worker, in_axes=(axes, 0), out_axes=(None, axes), axis_name="data")(state, batch)

    step = jax.jit(step)
    for batch in batches():
        params, state = step(params, state, batch)
    return jax.tree.map(np.asarray, params)


def save_all(path: str) -> None:
    """Trains with every compressor in turn and writes the parameters to a file."""
    arrays = {json.dumps([one, name]): x for one in COMPRESSORS for name, x in train(one).items()}
    np.savez(path, **arrays)


def of_two_processes(folder: Path) -> list[dict[str, np.ndarray]]:
    """What each of two processes saves."""
    port, paths = free_port(), [str(folder / f"{place}.npz") for place in range(2)]
    results = run_together([joined(PROGRAM.format(path=path), place, 2, port) for place, path in enumerate(paths)])
    for result in results:
        assert result.returncode == 0, result.stderr
    return [dict(np.load(path)) for path in paths]


# One test and not three, so that the two processes start once.
def test_same_result_on_one_device_several_devices_and_several_processes(tmp_path, subtests):
    several_processes = of_two_processes(tmp_path)
    for expression in COMPRESSORS:
        with subtests.test(compressor=expression):
            several_devices = train(expression)
            for name, x in several_devices.items():
                # It has learned something, so that equality says more than that nothing moved.
                assert np.abs(x - initial_parameters()[name]).max() > 0.01
                # The average of two numbers does not depend on their order, so this holds to the last bit.
                for of_process in several_processes:
                    np.testing.assert_array_equal(of_process[json.dumps([expression, name])], x, err_msg=name)
            # `vmap` multiplies matrices in batches, which may round differently; nothing else does.
            assert_close(train_on_one_device(expression), several_devices)
