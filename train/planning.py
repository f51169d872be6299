"""The compressor of ``--compressor auto``: measured links and steps, and the plan that follows."""

import sys
from collections.abc import Callable
from typing import Any

import optax

import jaxcompress
from train.config import Config
from train.console import say
from train.errors import user_input
from train.processes import Mesh, axes_of, axes_of_rows, is_main_process
from train.task import Batch


def planned_compressor(
    config: Config,
    mesh: Mesh,
    loss_fn: Callable,
    optimizer: Callable[[jaxcompress.Compressor], optax.GradientTransformation],
    variables: tuple[Any, Any],
    batch: Batch,
) -> jaxcompress.Compressor:
    """Prints a plan for the workers of `mesh`, and returns its choice; all processes agree.

    `optimizer` makes the chain of a compressor, and `batch` has this process's rows.
    """
    params, batch_stats = variables
    say(config, "measuring links and steps, to choose a compressor")
    with user_input("compressor"):
        found = jaxcompress.plan(
            loss_fn,
            optimizer,
            params,
            jaxcompress.shard_batch(batch, mesh, axes_of_rows(mesh)),
            mesh,
            extra=batch_stats,
            axis_name=axes_of(mesh),
            micro_batches=config.micro_batches,
        )
    if is_main_process():
        print(found, file=sys.stderr, flush=True)
    return found.compressor
