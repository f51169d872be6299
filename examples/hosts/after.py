"""Several hosts: two layers learn to read digits, and each host reads rows of its own.

python after.py HOST:PORT PROCESSES PROCESS     on every host, with the address of process 0
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import jaxcompress as jc


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


def main(coordinator, processes, process, steps=200):
    jc.initialize_processes(coordinator, processes, process)
    images, labels = load_digits(return_X_y=True)
    images = np.float32(images) / 16
    mine = np.arange(process, 1500, processes)  # the rows of this host
    mesh = jc.data_mesh()
    params = jc.replicate(init(jax.random.key(0)), mesh)  # the same key on every host
    link = jc.compress(jc.error_feedback(jc.power_sgd(4)))
    optimizer = jc.apply_if_all_finite(optax.chain(link, optax.adamw(1e-2)))
    state = jc.init_state(optimizer, params, mesh)
    train_step = jc.make_train_step(loss_fn, optimizer, mesh)

    for step in range(steps):
        rows = np.random.default_rng((step, process)).choice(mine, size=128 // processes)
        batch = jc.shard_batch({"image": images[rows], "label": labels[rows]}, mesh)
        params, state, _, metrics = train_step(params, state, {}, batch)
        if step % 50 == 49 and process == 0:
            print(f"step {step + 1}: loss {metrics['loss']:.3f}")
    own = jax.tree.map(np.asarray, params)  # arrays of this host alone
    accuracy = np.mean(np.argmax(predict(own, images[1500:]), axis=1) == labels[1500:])
    print(f"test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(__doc__)
