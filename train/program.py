"""The compiled training step of a run, and the bytes that it sends, counted in the program itself."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import optax

import jaxcompress
from train.errors import user_input
from train.expression import constructors_in
from train.optimizer import make_optimizer
from train.processes import axes_of
from train.setup import Setup
from train.task import Batch, init_model, make_loss


class TrainState(NamedTuple):
    """Everything that a step reads and writes."""

    params: Any
    opt_state: Any  # with the error memories of all workers, (workers, …), and the random keys
    batch_stats: Any  # running statistics of BatchNorm; empty without


class Program(NamedTuple):
    """A step that is compiled, and what it sends."""

    step: Callable[..., Any]  # (*state, batch) -> (*state, metrics); the state it was given is gone
    bytes_per_step: float  # sent by one worker; of a switch, by the choice that sends the most
    final_bytes_per_step: float  # the same of its last choice, where a long enough run ends
    dense_bytes_per_step: float  # the same with dense() as the compressor


def build_program(setup: Setup, model: nn.Module, schedule: optax.Schedule, batch: Batch) -> tuple[TrainState, Program]:
    """The state before the first step, and the program for batches like `batch`."""
    mesh, axes = setup.mesh, axes_of(setup.mesh)
    shards = jaxcompress.shard_batch(batch, mesh, axes)
    params, batch_stats = jaxcompress.replicate(init_model(model, batch, setup.config.seed), mesh)

    def build(compressor: jaxcompress.Compressor) -> tuple[TrainState, Any, str]:
        with user_input("compressor"):
            optimizer = make_optimizer(setup.config, compressor, schedule, axes)
        step = jaxcompress.make_train_step(
            make_loss(model), optimizer, mesh, axes, micro_batches=setup.config.micro_batches
        )
        # Here the compressor meets the arrays of the model for the first time, and may not know what to do with them.
        with user_input("compressor"):
            state = TrainState(params, jaxcompress.init_state(optimizer, params, mesh, axes), batch_stats)
            lowered = step.lower(*state, shards)
        compiled = lowered.compile()
        return state, compiled, compiled.as_text()

    state, step, text = build(setup.compressor)
    is_dense = jaxcompress.unparse(setup.compressor) == jaxcompress.unparse(jaxcompress.dense())
    # The baseline is compiled only to be counted; it never runs.
    dense_text = text if is_dense else build(jaxcompress.dense())[-1]
    sent, dense_sent = (jaxcompress.traffic_of_hlo(each).wire_bytes for each in (text, dense_text))
    return state, Program(step, sent, _final(setup.compressor, text), dense_sent)


def _final(compressor: jaxcompress.Compressor, text: str) -> float:
    """Bytes of the last choice of a switch; other conditionals, as of `acp_sgd`, have no last one."""
    if not {"switch", "dgc_ladder"} & constructors_in(jaxcompress.unparse(compressor)):
        return jaxcompress.traffic_of_hlo(text).wire_bytes
    return jaxcompress.traffic_of_hlo(text, branch=lambda choices: choices[-1]).wire_bytes


def count(params: Any) -> int:
    """How many parameters a model has."""
    return sum(param.size for param in jax.tree.leaves(params))
