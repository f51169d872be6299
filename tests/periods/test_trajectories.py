"""Stored trajectories of local updates, made by NumPy alone, and the library's beside them.

``python tests/periods/test_trajectories.py`` writes them again. They are data, so that a change of
a sign or of an order is seen even if it is made in the library and in an oracle alike.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

STORED = Path(__file__).with_name("trajectories.json")
STEPS = 12
START = [1.0, -2.0, 0.5]
# Worker w has the loss ``sum(CURVATURE * (x - TARGETS[w]) ** 2) / 2``.
CURVATURE = [0.2, 1.0, 3.0]
TARGETS = [[0.0, 1.0, 2.0], [2.0, -1.0, 0.0]]
CASES = {
    "local SGD": {"period": 3},
    "DiLoCo": {"period": 4, "inner_momentum": 0.9, "outer": [0.7, 0.9]},
    "largest entry with a decaying memory": {"period": 2, "largest": True, "decay": 0.95},
    "weights": {"period": 2, "weights": [1.0, 3.0]},
    "a period that grows": {"period": [1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3]},
    "a flush after every fifth step": {"period": 4, "outer": [0.7, 0.9], "flush_every": 5},
}


def trajectory(case):
    """The anchor after each step, in float64."""
    curvature, targets = np.array(CURVATURE), np.array(TARGETS)
    weights = np.array(case.get("weights", [1.0, 1.0]))
    rate, momentum = case.get("outer", [1.0, 0.0])
    anchor, own = np.array(START), np.array([START, START])
    speed, velocity, memory = np.zeros((2, 3)), np.zeros(3), np.zeros((2, 3))
    since, path = 0, []
    for step in range(1, STEPS + 1):
        period = case["period"] if isinstance(case["period"], int) else case["period"][step - 1]
        speed = case.get("inner_momentum", 0.0) * speed + curvature * (own - targets)
        own, since = own - 0.1 * speed, since + 1
        if since >= period or (case.get("flush_every") and step % case["flush_every"] == 0):
            carried = 2 * weights[:, None] / weights.sum() * (anchor - own)
            carried = carried + case.get("decay", 0.0) * memory
            sent = carried
            if case.get("largest"):
                places = np.abs(carried).argmax(axis=1)
                sent = np.where(np.arange(3) == places[:, None], carried, 0)
            memory, drift = carried - sent, sent.mean(axis=0)
            velocity = momentum * velocity + drift
            anchor = anchor - rate * (drift + momentum * velocity)
            own, since = np.array([anchor, anchor]), 0
        path.append(anchor)
    return np.array(path)


@pytest.mark.parametrize("name", CASES)
def test_the_stored_trajectory_is_that_of_numpy(name):
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert stored.keys() == CASES.keys()
    np.testing.assert_allclose(stored[name], trajectory(CASES[name]), rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_library_follows_it(name):
    np.testing.assert_allclose(
        library(CASES[name]), json.loads(STORED.read_text())[name], rtol=2e-5, atol=2e-6
    )


def library(case):
    """The same by `local_updates`."""
    import jaxcompress as jc

    mesh = jc.VirtualMesh(2)
    compressor = jc.dense()
    if case.get("largest"):
        compressor = jc.error_feedback(jc.top_k(1 / 3), decay=case["decay"])
    rate, momentum = case.get("outer", [1.0, 0.0])
    steps = case["period"]
    if not isinstance(steps, int):
        table = jnp.array(steps)
        steps = lambda count: table[count - 1]  # noqa: E731
    optimizer = jc.local_updates(
        optax.sgd(0.1, momentum=case.get("inner_momentum")),
        optax.sgd(rate, momentum=momentum, nesterov=True),
        jc.compress(compressor, min_compression_rate=0),
        steps,
    )

    def loss_fn(params, batch):
        return jnp.sum(jnp.array(CURVATURE) * jnp.square(params - batch[0])) / 2

    params = jnp.array(START)
    state, extra = jc.init_state(optimizer, params, mesh), jc.rows_of_workers({}, mesh)
    step = jc.make_local_step(loss_fn, optimizer, mesh, donate=False)
    flush = jc.make_flush(optimizer, mesh)
    batch = jc.shard_batch(np.array(TARGETS, np.float32), mesh)
    path = []
    for number in range(1, STEPS + 1):
        weights = jnp.array(case.get("weights", [1.0, 1.0]))
        params, state, extra, _ = step(params, state, extra, batch, weights)
        if case.get("flush_every") and number % case["flush_every"] == 0:
            params, state, extra = flush(params, state, extra)
        path.append(np.array(params))
    return np.array(path)


if __name__ == "__main__":
    found = {name: trajectory(case).tolist() for name, case in CASES.items()}
    STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
