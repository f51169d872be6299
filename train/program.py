"""The training step of a run: built for a mesh, compiled, and its traffic counted."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import optax

import jaxcompress
from train.errors import user_input
from train.processes import Mesh, axes_of, axes_of_rows
from train.task import Batch


class TrainState(NamedTuple):
    """Everything that a step reads and writes."""

    params: Any
    opt_state: Any  # includes the error memories of all workers, (workers, …), and the random keys
    batch_stats: Any  # running statistics of BatchNorm; empty without


class Program(NamedTuple):
    """A training step that is ready to compile, and its traffic."""

    # () -> step, where step is (*state, batch) -> (*state, metrics) and donates its state
    compile: Callable[[], Callable[..., Any]]
    traffic: Callable[..., jaxcompress.Traffic]  # (branch=…) -> what one worker sends in a step


class BytesPerStep(NamedTuple):
    """What one worker sends in one step, in bytes."""

    largest: float  # of a switch, by the choice that sends the most
    final: float  # of a switch, by its last choice, where a long enough run ends
    dense: float  # with dense() as the compressor


def build_program(
    loss_fn: Callable,
    optimizer: optax.GradientTransformation,
    variables: tuple[Any, Any],
    batch: Batch,
    mesh: Mesh,
    micro_batches: int,
) -> tuple[TrainState, Program]:
    """The initial state, and one training step for batches like `batch` on the workers of `mesh`.

    `variables` are the parameters and the running statistics, already on the mesh.
    """
    axes, (params, batch_stats) = axes_of(mesh), variables

    def lower(step_mesh, *arguments):
        return jaxcompress.make_train_step(
            loss_fn, optimizer, step_mesh, axes, micro_batches=micro_batches
        ).trace(*arguments)

    shards = jaxcompress.shard_batch(batch, mesh, axes_of_rows(mesh))
    # The compressor sees the arrays of the model here for the first time, and may refuse them.
    with user_input("compressor"):
        opt_state = jaxcompress.init_state(optimizer, params, mesh, axes)
        state = TrainState(params, opt_state, batch_stats)
        lowered = lower(mesh, *state, shards).lower()
    if isinstance(mesh, jaxcompress.VirtualMesh):
        # Workers on one device send nothing, so the traffic is that of as many devices.
        jaxpr = lower(mesh.abstract, *state, shards).jaxpr
        return state, Program(
            lowered.compile, functools.partial(jaxcompress.traffic_of_jaxpr, jaxpr)
        )
    compiled = lowered.compile()
    text = compiled.as_text()

    def traffic(**options):
        return jaxcompress.traffic_of_hlo(text, mesh=mesh, **options).over(axes)

    return state, Program(lambda: compiled, traffic)


def count_bytes(program: Program, dense: Program, has_choices: bool) -> BytesPerStep:
    """The bytes per step of a program, and of the same with ``dense()``.

    With `has_choices` the last branch of a conditional is the final one. Other conditionals, such
    as that of `acp_sgd`, alternate between their branches.
    """
    sent = program.traffic().wire_bytes
    final = program.traffic(branch=lambda choices: choices[-1]).wire_bytes if has_choices else sent
    return BytesPerStep(sent, final, dense.traffic().wire_bytes)
