"""A Flax NNX model with BatchNorm and Dropout learns to read digits."""

import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits


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


@nnx.jit
def train_step(model, optimizer, batch):
    loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return loss


def main(steps=200):
    images, labels = load_digits(return_X_y=True)
    images, rng = np.float32(images) / 16, np.random.default_rng(0)
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    for _ in range(steps):
        rows = rng.integers(1500, size=128)
        loss = train_step(model, optimizer, {"image": images[rows], "label": labels[rows]})
    model.eval()
    accuracy = np.mean(np.argmax(model(images[1500:]), axis=1) == labels[1500:])
    print(f"loss {loss:.3f}, test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
