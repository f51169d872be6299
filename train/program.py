"""The training step of a run: built for a mesh, compiled, and its traffic counted."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import optax

import jaxcompress
from train.config import Config
from train.errors import user_input
from train.processes import Mesh, axes_of, axes_of_rows, is_sharded
from train.step_plan import StepPlan
from train.task import Batch


class TrainState(NamedTuple):
    """Everything that a step reads and writes."""

    params: Any
    opt_state: Any  # includes the error memories of all workers, (workers, …), and the random keys
    # running statistics of BatchNorm; empty without. With a period each worker's own, (workers, …)
    batch_stats: Any

    def shapes(self) -> "TrainState":
        """The shape, the dtype and the place of every array."""
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), self
        )

    def shared_stats(self) -> Any:
        """The running statistics with which the model is evaluated: the mean over workers."""
        own = isinstance(self.batch_stats, jaxcompress.PerWorker)
        return jaxcompress.mean_over_workers(self.batch_stats) if own else self.batch_stats


class Program(NamedTuple):
    """A training step that is ready to compile, and its traffic."""

    # () -> step, where step is (*state, batch, **given) -> (*state, metrics) and donates its state
    compile: Callable[[], Callable[..., Any]]
    traffic: Callable[..., jaxcompress.Traffic]  # (branch=…) -> what one worker sends in a step
    # The same without compiling the step, where XLA adds no collectives: in models that are whole.
    requested: Callable[..., jaxcompress.Traffic]
    # () -> a function that averages now what is due later in the period
    compile_end: Callable[[], Callable[[TrainState], TrainState]]


class BytesPerStep(NamedTuple):
    """What one worker sends in one step, in bytes; with a period the average of the run's steps."""

    largest: float  # of a switch, by the choice that sends the most
    final: float  # of a switch, by its last choice, where a long enough run ends
    dense: float  # with dense() as the compressor, without a period
    peak: float  # in the step that ends a period; without one, as largest
    # of one adaptive, in a step that averages, at each of its levels; empty without
    by_level: tuple[float, ...] = ()


def build_program(
    loss_fn: Callable,
    optimizer: optax.GradientTransformationExtraArgs,
    variables: tuple[Any, Any],
    batch: Batch,
    mesh: Mesh,
    config: Config,
    first_given: Callable[[Any, Mesh], dict[str, jax.Array]],
) -> tuple[TrainState, Program]:
    """The initial state, and one training step for batches like `batch` on the workers of `mesh`.

    `variables` are the parameters and the running statistics, already on the mesh. `first_given`
    tells what an optimizer's step is given by name, beside the batch.
    """
    axes, (params, batch_stats) = axes_of(mesh), variables
    make_step = jaxcompress.make_train_step
    if config.period is not None:
        make_step = jaxcompress.make_local_step
        batch_stats = jaxcompress.rows_of_workers(batch_stats, mesh, axes)

    def lower(step_mesh, given, *arguments):
        return make_step(
            loss_fn, optimizer, step_mesh, axes, micro_batches=config.micro_batches
        ).trace(*arguments, **given)

    shards = jaxcompress.shard_batch(batch, mesh, axes_of_rows(mesh))
    # The compressor sees the arrays of the model here for the first time, and may refuse them.
    with user_input("compressor"):
        opt_state = jaxcompress.init_state(optimizer, params, mesh, axes)
        state = TrainState(params, opt_state, batch_stats)
        given = first_given(opt_state, mesh)
        # Workers on one device send nothing, so the traffic is that of as many devices.
        counted = mesh.abstract if isinstance(mesh, jaxcompress.VirtualMesh) else mesh
        traced = lower(counted, given, *state, shards)
    shapes = state.shapes()
    requested = functools.partial(jaxcompress.traffic_of_jaxpr, traced.jaxpr)
    compile_end = functools.partial(_compile_end, optimizer, shapes, mesh)
    if isinstance(mesh, jaxcompress.VirtualMesh):

        def compile_virtual():
            with user_input("compressor"):
                lowered = lower(mesh, given, *shapes, shards).lower()
            return lowered.compile()

        return state, Program(compile_virtual, requested, requested, compile_end)
    compiled = functools.cache(lambda: traced.lower().compile())
    text = functools.cache(lambda: compiled().as_text())

    def traffic(**options):
        return jaxcompress.traffic_of_hlo(text(), mesh=mesh, **options).over(axes)

    requested = traffic if is_sharded(mesh) else requested
    return state, Program(compiled, traffic, requested, compile_end)


def _compile_end(
    optimizer: optax.GradientTransformationExtraArgs, shapes: TrainState, mesh: Mesh
) -> Callable[[TrainState], TrainState]:
    flush = jaxcompress.make_flush(optimizer, mesh, axes_of(mesh)).lower(*shapes).compile()
    return lambda state: TrainState(*flush(*state))


def count_bytes(
    program: Program, dense: Program, has_choices: bool, levels: int, plan: StepPlan
) -> BytesPerStep:
    """The bytes per step of a program, beside those of a `dense` one, which is not compiled.

    With `has_choices` the last branch of each conditional is the final one; of an `acp_sgd` among
    the choices, which alternates between its branches, that is one factor. With a period, the last
    of two branches is the step that ends it. `levels` are those of the one `adaptive`, and 0
    without.
    """
    by_level = tuple(
        program.traffic(branch=functools.partial(_at_level, level=level, levels=levels)).wire_bytes
        for level in range(levels)
    )
    peak, dense_bytes = program.traffic().wire_bytes, dense.requested().wire_bytes
    final = program.traffic(branch=lambda choices: choices[-1]).wire_bytes if has_choices else peak
    if plan.period is None:
        return BytesPerStep(peak, final, dense_bytes, peak, by_level)
    # Within a period workers send nothing to one another.
    share = plan.averages(plan.total) / plan.total
    return BytesPerStep(peak * share, final * share, dense_bytes, peak, by_level)


def _at_level(
    choices: Sequence[jaxcompress.Traffic], level: int, levels: int
) -> jaxcompress.Traffic:
    """That of a level, if these are the levels of `adaptive`; else that which sends most.

    Every level sends something, and a step within a period nothing.
    """
    if len(choices) == levels and all(one.wire_bytes for one in choices):
        return choices[level]
    return max(choices, key=lambda one: one.wire_bytes)
