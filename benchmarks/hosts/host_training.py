"""What hosts train while their links are measured: a transformer on characters drawn at random."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

import jaxcompress
from train.models.build_model import build_model
from train.sharding import init_on_mesh
from train.task import make_loss

CHARACTERS, CONTEXT, ROWS_OF_A_HOST = 65, 64, 8


class Training(NamedTuple):
    """The parts of a training step."""

    loss_fn: Callable[..., Any]
    params: Any
    batch: Any  # of all hosts


def transformer(
    mesh: Mesh, rank: int, size: dict[str, int], axes: str | tuple[str, ...] = "data"
) -> Training:
    """The same parameters on every host, and other rows on each, split over `axes`."""
    random = np.random.default_rng(rank)
    text = random.integers(CHARACTERS, size=(ROWS_OF_A_HOST, CONTEXT + 1), dtype=np.int32)
    batch = {"inputs": text[:, :-1], "labels": text[:, 1:]}
    model = build_model("transformer", CHARACTERS, (CONTEXT,), transformer_size=size)
    params, _ = init_on_mesh(model, batch, 0, mesh)
    return Training(make_loss(model), params, jaxcompress.shard_batch(batch, mesh, axes))
