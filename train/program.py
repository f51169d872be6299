"""The compiled training step of a run, and the bytes that it sends, counted in the program itself."""

import functools
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

Count = Callable[..., jaxcompress.Traffic]  # what a step sends; of a conditional, as `branch` says


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
    params, batch_stats = jaxcompress.replicate(init_model(model, batch, setup.config.seed), setup.mesh)
    shards = jaxcompress.shard_batch(batch, setup.mesh, axes_of(setup.mesh))

    def build(compressor: jaxcompress.Compressor) -> tuple[TrainState, Callable[[], Any], Count]:
        optimizer, make_step = _maker(setup, model, schedule, compressor)
        # Here the compressor meets the arrays of the model for the first time, and may not know what to do with them.
        with user_input("compressor"):
            opt_state = jaxcompress.init_state(optimizer, params, setup.mesh, axes_of(setup.mesh))
            state = TrainState(params, opt_state, batch_stats)
            lowered = make_step(setup.mesh).lower(*state, shards)
        if isinstance(setup.mesh, jaxcompress.VirtualMesh):
            asked = make_step(setup.mesh.abstract).trace(*state, shards).jaxpr
            return state, lowered.compile, functools.partial(jaxcompress.traffic_of_jaxpr, asked)
        compiled = lowered.compile()
        return state, lambda: compiled, functools.partial(jaxcompress.traffic_of_hlo, compiled.as_text())

    state, compiled, sent = build(setup.compressor)
    is_dense = jaxcompress.unparse(setup.compressor) == jaxcompress.unparse(jaxcompress.dense())
    # The baseline is built only to be counted; it never runs.
    dense_sent = sent if is_dense else build(jaxcompress.dense())[-1]
    return state, Program(compiled(), sent().wire_bytes, _final(setup.compressor, sent), dense_sent().wire_bytes)


def _maker(
    setup: Setup, model: nn.Module, schedule: optax.Schedule, compressor: jaxcompress.Compressor
) -> tuple[optax.GradientTransformation, Callable[..., Any]]:
    """The optimizer with this compressor, and what makes a step with it over the workers of a mesh."""
    axes, parts = axes_of(setup.mesh), setup.config.micro_batches
    with user_input("compressor"):
        optimizer = make_optimizer(setup.config, compressor, schedule, axes)
    loss = make_loss(model)
    return optimizer, lambda mesh: jaxcompress.make_train_step(loss, optimizer, mesh, axes, micro_batches=parts)


def _final(compressor: jaxcompress.Compressor, sent: Count) -> float:
    """Bytes of the last choice of a switch; other conditionals, as of `acp_sgd`, have no last one."""
    if not {"switch", "dgc_ladder"} & constructors_in(jaxcompress.unparse(compressor)):
        return sent().wire_bytes
    return sent(branch=lambda choices: choices[-1]).wire_bytes


def count(params: Any) -> int:
    """How many parameters a model has."""
    return sum(param.size for param in jax.tree.leaves(params))
