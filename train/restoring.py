"""The state of a checkpoint on the workers of this run, whose number may have changed."""

from typing import Any

import jax
import numpy as np

import jaxcompress
from train.checkpoint import Checkpoints
from train.errors import user_input
from train.processes import Mesh, workers_of
from train.program import TrainState


def restore_state(
    checkpoints: Checkpoints, like: TrainState, saved_workers: int, mesh: Mesh
) -> TrainState:
    """The newest checkpoint, which `saved_workers` wrote, placed as `like`.

    For another number of workers, memories and drifts keep their mean over workers, and so do each
    worker's running statistics and the moments of its own optimizer.
    """
    workers = workers_of(mesh)
    if saved_workers == workers:
        return TrainState(**checkpoints.restore(like._asdict()))
    target = jax.tree.map(lambda node: _rows(node, saved_workers), like, is_leaf=_is_per_worker)
    saved = TrainState(**checkpoints.restore(target._asdict()))

    def resharded(node: Any, like: Any) -> Any:
        if not _is_per_worker(node):
            return node
        return jax.tree.map(_placed, jaxcompress.reshard_workers(node, workers), like)

    with user_input("workers"):
        return jax.tree.map(resharded, saved, like, is_leaf=_is_per_worker)


def _rows(node: Any, workers: int) -> Any:
    """A `PerWorker` part as NumPy arrays of (workers, …), the target of a restore on the host."""
    if not _is_per_worker(node):
        return node
    return jax.tree.map(
        lambda x: np.broadcast_to(np.zeros((), x.dtype), (workers, *x.shape[1:])), node
    )


def _placed(x: jax.Array, like: jax.Array) -> jax.Array:
    host = np.asarray(x)
    # A copy: JAX may use memory on the host as it is, and a step overwrites what it is donated.
    return jax.make_array_from_callback(
        host.shape, like.sharding, lambda index: np.array(host[index], order="C")
    )


def _is_per_worker(node: Any) -> bool:
    return isinstance(node, jaxcompress.PerWorker)
