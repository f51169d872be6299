"""Several hosts: two layers learn to read digits, and each host reads rows of its own.

python before.py HOST:PORT PROCESSES PROCESS     on every host, with the address of process 0
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
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


def main(coordinator, processes, process, steps=200):
    jax.distributed.initialize(coordinator, processes, process)
    images, labels = load_digits(return_X_y=True)
    images = np.float32(images) / 16
    mine = np.arange(process, 1500, processes)  # the rows of this host
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    params = init(jax.random.key(0))  # the same key on every host
    optimizer = optax.adamw(1e-2)
    params, state = jax.device_put((params, optimizer.init(params)), NamedSharding(mesh, P()))

    @jax.jit
    def train_step(params, state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    for step in range(steps):
        rows = np.random.default_rng((step, process)).choice(mine, size=128 // processes)
        batch = {"image": images[rows], "label": labels[rows]}
        batch = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), batch)
        params, state, loss = train_step(params, state, batch)
        if step % 50 == 49 and process == 0:
            print(f"step {step + 1}: loss {loss:.3f}")
    own = jax.tree.map(np.asarray, params)  # arrays of this host alone
    accuracy = np.mean(np.argmax(predict(own, images[1500:]), axis=1) == labels[1500:])
    print(f"test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(__doc__)
