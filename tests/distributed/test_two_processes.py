"""The same training on one device, on two devices of one process, and on two processes joined by
gloo.
"""

import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from helpers import FLOAT32
from subprocesses import free_port, joined, run_together

import jaxcompress
from jaxcompress.distributed.specs import is_per_worker

WORKERS, ROWS, STEPS = 2, 32, 6
COMPRESSORS = [
    "error_feedback(top_k(0.1))",
    "error_feedback(power_sgd(2))",
    "error_feedback(qsgd(4))",
]

# All runs are processes that start as a user's do, and write what they end with: the tests' own
# process compiles with other flags, and rounds otherwise. They share this file's functions and
# nothing else.
SAVE = """
import sys
sys.path.insert(0, "tests/distributed")
import test_two_processes
test_two_processes.save_all(test_two_processes.{train}, {path!r})
"""
TWO_DEVICES = "import jaxcompress; jaxcompress.virtual_cpu_workers(2)"


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
    return optax.chain(
        jaxcompress.compress(jaxcompress.parse(expression)), optax.sgd(0.3, momentum=0.9)
    )


def train(expression: str) -> dict[str, np.ndarray]:
    """The parameters after a few steps over two workers: devices of this process, or one of each of
    two processes.
    """
    mesh, optimizer = jaxcompress.data_mesh(WORKERS), optimizer_of(expression)
    params = jaxcompress.replicate(initial_parameters(), mesh)
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(loss_of, optimizer, mesh)
    of_process = ROWS // jax.process_count()
    rows = slice(of_process * jax.process_index(), of_process * (jax.process_index() + 1))
    extra = {}
    for x, y in batches():
        batch = jaxcompress.shard_batch((x[rows], y[rows]), mesh)
        params, state, extra, _ = step(params, state, extra, batch)
    return {name: np.asarray(x.addressable_shards[0].data) for name, x in params.items()}


def train_on_one_device(expression: str) -> dict[str, np.ndarray]:
    """The same steps with two virtual workers, by `vmap`, on one device."""
    optimizer = optimizer_of(expression)
    params = jax.tree.map(jnp.asarray, initial_parameters())
    state = jaxcompress.init_state(optimizer, params, jaxcompress.data_mesh(WORKERS))
    # Off its two devices: `vmap` runs on one.
    state = jax.device_put(state, jax.devices()[0])
    axes = jax.tree.map(
        lambda node: 0 if is_per_worker(node) else None, state, is_leaf=is_per_worker
    )

    def step(params, state, batch):
        def one_worker(state, batch):
            grads = jax.grad(lambda params: loss_of(params, {}, batch)[0])(params)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        batch = jax.tree.map(lambda x: x.reshape(WORKERS, ROWS // WORKERS, -1), batch)
        return jax.vmap(one_worker, in_axes=(axes, 0), out_axes=(None, axes), axis_name="data")(
            state, batch
        )

    step = jax.jit(step)
    for batch in batches():
        params, state = step(params, state, batch)
    return jax.tree.map(np.asarray, params)


def save_all(train: Callable[[str], dict[str, np.ndarray]], path: str) -> None:
    """Trains with every compressor in turn and writes the parameters to a file."""
    np.savez(
        path,
        **{json.dumps([one, name]): x for one in COMPRESSORS for name, x in train(one).items()},
    )


def all_parameters(folder: Path) -> list[dict[str, np.ndarray]]:
    """What is saved by: one device, two devices of one process, and each of two processes."""
    port, paths = free_port(), [str(folder / f"{place}.npz") for place in range(4)]
    saves = [SAVE.format(train="train", path=path) for path in paths]
    saves[0] = SAVE.format(train="train_on_one_device", path=paths[0])
    alone = [TWO_DEVICES + save for save in saves[:2]]
    together = [joined(save, place, 2, port) for place, save in enumerate(saves[2:])]
    for result in run_together(alone + together):
        assert result.returncode == 0, result.stderr
    return [dict(np.load(path)) for path in paths]


# One test and not three, so that every process starts once.
def test_same_result_on_one_device_several_devices_and_several_processes(tmp_path, subtests):
    one_device, two_devices, *two_processes = all_parameters(tmp_path)
    for expression in COMPRESSORS:
        with subtests.test(compressor=expression):
            for name, start in initial_parameters().items():
                key = json.dumps([expression, name])
                # It has learned something, so that equality says more than that nothing moved.
                assert np.abs(two_devices[key] - start).max() > 0.01
                # The average of two numbers does not depend on their order, so this holds to the
                # last bit.
                for of_process in two_processes:
                    np.testing.assert_array_equal(of_process[key], two_devices[key], err_msg=name)
                # `vmap` multiplies matrices in batches, which may round differently; nothing else
                # does.
                np.testing.assert_allclose(one_device[key], two_devices[key], **FLOAT32)
