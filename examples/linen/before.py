"""A Flax Linen model with BatchNorm and Dropout learns to read digits."""

import jax
import numpy as np
import optax
from flax import linen as nn
from sklearn.datasets import load_digits


class Model(nn.Module):
    """Two layers."""

    @nn.compact
    def __call__(self, images, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(256)(images))
        x = nn.Dropout(0.2, deterministic=not train)(nn.relu(x))
        return nn.Dense(10)(x)


def loss_fn(params, stats, key, batch):
    logits, changed = Model().apply(
        {"params": params, "batch_stats": stats},
        batch["image"],
        train=True,
        rngs={"dropout": key},
        mutable=["batch_stats"],
    )
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    return losses.mean(), changed["batch_stats"]


def make_train_step(optimizer):
    @jax.jit
    def train_step(params, state, stats, key, batch):
        key, own_key = jax.random.split(key)
        value_and_grad = jax.value_and_grad(loss_fn, has_aux=True)
        (loss, stats), grads = value_and_grad(params, stats, own_key, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, stats, key, loss

    return train_step


def main(steps=200):
    images, labels = load_digits(return_X_y=True)
    images, rng = np.float32(images) / 16, np.random.default_rng(0)
    variables = Model().init(jax.random.key(0), images[:1], train=False)
    params, stats, key = variables["params"], variables["batch_stats"], jax.random.key(1)
    optimizer = optax.adam(1e-2)
    state = optimizer.init(params)
    train_step = make_train_step(optimizer)
    for _ in range(steps):
        rows = rng.integers(1500, size=128)
        batch = {"image": images[rows], "label": labels[rows]}
        params, state, stats, key, loss = train_step(params, state, stats, key, batch)
    logits = Model().apply({"params": params, "batch_stats": stats}, images[1500:], train=False)
    accuracy = np.mean(np.argmax(logits, axis=1) == labels[1500:])
    print(f"loss {loss:.3f}, test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
