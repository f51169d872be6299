"""A Flax NNX model with BatchNorm and Dropout learns to read digits."""

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

import jaxcompress as jc


class Model(nnx.Module):
    """Two layers."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(64, 256, rngs=rngs)
        self.norm = nnx.BatchNorm(256, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.last = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, images):
        return self.last(self.dropout(nnx.relu(self.norm(self.first(images)))))


def loss_fn(model, batch):
    logits = model(batch["image"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()


def functional(graphdef, keys):
    """`loss_fn` as `make_train_step` takes it, of parameters and of other state."""

    def loss(params, extra, batch):
        own_keys = jax.tree.map(jc.worker_key, keys)  # else all workers drop the same units
        model = nnx.merge(graphdef, params, own_keys, extra, copy=True)
        found = loss_fn(model, batch)
        *_, extra = nnx.split(model, nnx.Param, nnx.RngKey, ...)
        return found, (extra, {})  # the dict has metrics of one's own, if there are any

    return loss


def main(steps=200):
    images, labels = load_digits(return_X_y=True)
    images, rng = np.float32(images) / 16, np.random.default_rng(0)
    mesh = jc.data_mesh()
    graphdef, params, keys, extra = nnx.split(Model(nnx.Rngs(0)), nnx.Param, nnx.RngKey, ...)
    params, extra = jc.replicate((params, extra), mesh)
    link = jc.compress(jc.error_feedback(jc.top_k(0.05)))
    optimizer = jc.apply_if_all_finite(optax.chain(link, optax.adam(1e-2)))
    state = jc.init_state(optimizer, params, mesh)
    train_step = jc.make_train_step(functional(graphdef, keys), optimizer, mesh)
    for _ in range(steps):
        rows = rng.integers(1500, size=128)
        batch = jc.shard_batch({"image": images[rows], "label": labels[rows]}, mesh)
        params, state, extra, metrics = train_step(params, state, extra, batch)
    # To evaluate in the loop, merge again each time: a step reuses the old arrays.
    model = nnx.merge(graphdef, params, keys, extra)
    model.eval()
    accuracy = np.mean(np.argmax(model(images[1500:]), axis=1) == labels[1500:])
    print(f"loss {metrics['loss']:.3f}, test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
