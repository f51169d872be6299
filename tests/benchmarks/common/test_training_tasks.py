"""A task takes steps over several workers."""

import itertools

import jax
import optax

import jaxcompress
from benchmarks.common.training_tasks import load_task, training_steps


def test_the_loss_falls_and_the_state_counts_bytes():
    task = load_task("digits", "simple_cnn", 0.1)
    optimizer = optax.chain(
        jaxcompress.compress(jaxcompress.dense()), optax.sgd(task.learning_rate)
    )
    batches = itertools.islice(task.batches, 40)
    steps = training_steps(task, optimizer, jaxcompress.data_mesh(4), batches)
    found = [(float(metrics["loss"]), float(state[0].bits)) for metrics, state in steps]
    assert len(found) == 40
    assert sum(loss for loss, _ in found[-10:]) < 0.7 * sum(loss for loss, _ in found[:10])
    size = sum(x.size for x in jax.tree.leaves(task.params))
    assert {bits for _, bits in found} == {32 * size}
