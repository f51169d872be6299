"""A step of one's own, by `jax.shard_map`: two layers learn to read digits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P
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


def loss_fn(params, images, labels):
    logits = predict(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def main(steps=200):
    images, labels = load_digits(return_X_y=True)
    images, rng = np.float32(images) / 16, np.random.default_rng(0)
    mesh = jc.data_mesh()
    params = jc.replicate(init(jax.random.key(0)), mesh)
    link = jc.compress(jc.monitor(jc.error_feedback(jc.top_k(0.05))))
    optimizer = jc.apply_if_all_finite(optax.chain(link, optax.adam(1e-2)))
    state = jc.init_state(optimizer, params, mesh)
    specs = jc.state_specs(state)

    def local_step(params, state, images, labels):
        loss, grads = jc.local_value_and_grad(loss_fn)(params, images, labels)
        updates, state = optimizer.update(grads, jc.squeeze_worker_axis(state), params)
        params, state = optax.apply_updates(params, updates), jc.expand_worker_axis(state)
        return params, state, jax.lax.pmean(loss, "data")

    step = jax.jit(
        jax.shard_map(
            local_step,
            mesh=mesh,
            in_specs=(P(), specs, P("data"), P("data")),
            out_specs=(P(), specs, P()),
        )
    )
    requested, _ = jc.traffic(step, params, state, images[:128], labels[:128])
    print(f"{requested.wire_bytes:,} bytes leave a worker in each step")
    for _ in range(steps):
        rows = rng.integers(1500, size=128)
        params, state, loss = step(params, state, images[rows], labels[rows])
    accuracy = np.mean(np.argmax(predict(params, images[1500:]), axis=1) == labels[1500:])
    unsent = jc.monitor_metrics(state)["unsent_energy"]
    print(f"unsent energy of each worker: {np.round(unsent, 2)}")
    print(f"loss {loss:.3f}, test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
