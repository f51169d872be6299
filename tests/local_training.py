"""Linear regression by local updates, for tests of periods."""

import jax.numpy as jnp
import numpy as np

from jaxcompress import (
    compress,
    data_mesh,
    dense,
    error_memory,
    init_state,
    make_local_step,
    make_train_step,
    replicate,
    rows_of_workers,
    shard_batch,
)
from jaxcompress.periods.own_steps import local_state

WORKERS, ROWS = 4, 24
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 6), np.float32)
Y = RNG.standard_normal((ROWS, 40), np.float32)
W = RNG.standard_normal((6, 40), np.float32)


def loss_of(params, extra, batch):
    x, y = batch
    return jnp.mean(jnp.square(x @ params["w"] - y)), (extra, {})


class Training:
    """A run of `local_updates`, or of any chain where `local` is False."""

    def __init__(self, optimizer, workers=WORKERS, local=True, mesh=None):
        mesh = mesh or data_mesh(workers)
        self.optimizer, self.mesh = optimizer, mesh
        self.params = replicate({"w": W}, mesh)
        self.state = init_state(optimizer, self.params, mesh)
        make = make_local_step if local else make_train_step
        self.step = make(loss_of, optimizer, mesh)
        self.extra = rows_of_workers({}, mesh) if local else {}
        self.batch = shard_batch((X, Y), mesh)

    def run(self, steps, **more):
        """The anchor after each of these steps."""
        path = []
        for _ in range(steps):
            self.params, self.state, self.extra, self.metrics = self.step(
                self.params, self.state, self.extra, self.batch, **more
            )
            path.append(np.array(self.params["w"]))
        return path

    @property
    def own(self):
        """The workers' own parameters, (workers, …)."""
        return np.array(local_state(self.state).params.value["w"])

    @property
    def memory(self):
        """The workers' error memories, (workers, …)."""
        return np.array(error_memory(self.state, {"w": jnp.zeros((WORKERS, *W.shape))})["w"])


def average():
    return compress(dense())
