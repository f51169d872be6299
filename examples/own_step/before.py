"""A step of one's own, by `jax.shard_map`: two layers learn to read digits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType
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


def loss_fn(params, images, labels):
    logits = predict(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def main(steps=200):
    images, labels = load_digits(return_X_y=True)
    images, rng = np.float32(images) / 16, np.random.default_rng(0)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    params, optimizer = init(jax.random.key(0)), optax.adam(1e-2)
    state = optimizer.init(params)

    def local_step(params, state, images, labels):
        own = jax.lax.pcast(params, "data", to="varying")
        loss, grads = jax.value_and_grad(loss_fn)(own, images, labels)
        updates, state = optimizer.update(jax.lax.pmean(grads, "data"), state, params)
        return optax.apply_updates(params, updates), state, jax.lax.pmean(loss, "data")

    step = jax.jit(
        jax.shard_map(
            local_step,
            mesh=mesh,
            in_specs=(P(), P(), P("data"), P("data")),
            out_specs=(P(), P(), P()),
        )
    )
    for _ in range(steps):
        rows = rng.integers(1500, size=128)
        params, state, loss = step(params, state, images[rows], labels[rows])
    accuracy = np.mean(np.argmax(predict(params, images[1500:]), axis=1) == labels[1500:])
    print(f"loss {loss:.3f}, test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
