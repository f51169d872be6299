"""Plain functions, `jax.jit` and Orbax: two layers learn to read digits.

python before.py FOLDER     checkpoints are saved there; the same folder resumes
"""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits


def init(key):
    first, last = jax.random.split(key)
    return {
        "first": jax.random.normal(first, (64, 256)) / 8,
        "bias": jnp.zeros(256),
        "last": jax.random.normal(last, (256, 10)) / 16,
    }


def predict(params, images):
    return jax.nn.relu(images @ params["first"] + params["bias"]) @ params["last"]


def loss_fn(params, batch):
    logits = predict(params, batch["image"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()


def main(folder, steps=200):
    images, labels = load_digits(return_X_y=True)
    images = np.float32(images) / 16
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    params = init(jax.random.key(0))
    optimizer = optax.adamw(1e-2)
    params, state = jax.device_put((params, optimizer.init(params)), NamedSharding(mesh, P()))

    @jax.jit
    def train_step(params, state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    manager = ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=2))
    begin = manager.latest_step() or 0
    if begin:
        restored = manager.restore(begin, args=ocp.args.StandardRestore((params, state)))
        params, state = restored
    for step in range(begin, steps):
        rows = np.random.default_rng(step).integers(1500, size=128)
        batch = {"image": images[rows], "label": labels[rows]}
        batch = jax.device_put(batch, NamedSharding(mesh, P("data")))
        params, state, _ = train_step(params, state, batch)
        if step % 100 == 99:
            manager.save(step + 1, args=ocp.args.StandardSave((params, state)))
    manager.close()
    accuracy = np.mean(np.argmax(predict(params, images[1500:]), axis=1) == labels[1500:])
    print(f"test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__)
