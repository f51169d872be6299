"""A Flax Linen model with BatchNorm and Dropout learns to read digits."""

import jax
import numpy as np
import optax
from flax import linen as nn
from sklearn.datasets import load_digits

import jaxcompress as jc


class Model(nn.Module):
    """Two layers."""

    @nn.compact
    def __call__(self, images, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(256)(images))
        x = nn.Dropout(0.2, deterministic=not train)(nn.relu(x))
        return nn.Dense(10)(x)


def loss_fn(params, extra, batch):
    key, step_key = jax.random.split(extra["key"])
    logits, changed = Model().apply(
        {"params": params, "batch_stats": extra["stats"]},
        batch["image"],
        train=True,
        rngs={"dropout": jc.worker_key(step_key)},  # else all workers drop the same units
        mutable=["batch_stats"],
    )
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    return losses.mean(), ({"key": key, "stats": changed["batch_stats"]}, {})


def main(steps=200):
    images, labels = load_digits(return_X_y=True)
    images, rng = np.float32(images) / 16, np.random.default_rng(0)
    mesh = jc.data_mesh()
    variables = Model().init(jax.random.key(0), images[:1], train=False)
    extra = {"key": jax.random.key(1), "stats": variables["batch_stats"]}
    params, extra = jc.replicate((variables["params"], extra), mesh)
    link = jc.compress(jc.error_feedback(jc.top_k(0.05)))
    optimizer = jc.apply_if_all_finite(optax.chain(link, optax.adam(1e-2)))
    state = jc.init_state(optimizer, params, mesh)
    train_step = jc.make_train_step(loss_fn, optimizer, mesh)
    for _ in range(steps):
        rows = rng.integers(1500, size=128)
        batch = jc.shard_batch({"image": images[rows], "label": labels[rows]}, mesh)
        params, state, extra, metrics = train_step(params, state, extra, batch)
    variables = {"params": params, "batch_stats": extra["stats"]}
    logits = Model().apply(variables, images[1500:], train=False)
    accuracy = np.mean(np.argmax(logits, axis=1) == labels[1500:])
    print(f"loss {metrics['loss']:.3f}, test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
