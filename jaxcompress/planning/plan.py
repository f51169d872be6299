"""Plans a training step: measures its parts, and predicts it with each of several compressors."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import optax
from jax.sharding import AbstractMesh, Mesh

from jaxcompress.base import AxisName, Compressor
from jaxcompress.collectives.dense import dense, is_dense
from jaxcompress.compressors.low_rank.power_sgd import power_sgd
from jaxcompress.compressors.quantisers.cast import cast
from jaxcompress.compressors.quantisers.integer import int4
from jaxcompress.compressors.quantisers.qsgd import qsgd
from jaxcompress.compressors.sparsifiers.block_top_k import block_top_k
from jaxcompress.distributed.agreed_numbers import agreed_milliseconds
from jaxcompress.distributed.placement import init_state, map_per_worker, number_of_workers
from jaxcompress.distributed.step import check_differentiable, make_train_step
from jaxcompress.distributed.virtual import AnyMesh
from jaxcompress.feedback.error_feedback import error_feedback
from jaxcompress.ops.argument_checks import check_link
from jaxcompress.planning.choice import Option, Plan
from jaxcompress.planning.links import Links
from jaxcompress.planning.local_work import gradient, kept_energy, on_each, shape_of, update_ms
from jaxcompress.planning.measure import measure
from jaxcompress.planning.plan_checks import (
    check_batch,
    check_candidates,
    check_mesh,
    check_numbers,
)
from jaxcompress.profiling.collective import Traffic
from jaxcompress.profiling.jaxpr_traffic import traffic_of_jaxpr
from jaxcompress.routing.adaptive_states import given_names

# From the weakest to the strongest. Without `sign`, with which a transformer diverged.
CANDIDATES = (
    dense(),
    cast("bfloat16"),
    error_feedback(int4()),
    error_feedback(power_sgd(4)),
    error_feedback(block_top_k(0.01, inner=qsgd(6))),
)


def plan(
    loss_fn: Callable,
    optimizer: Callable[[Compressor], optax.GradientTransformation],
    params: Any,
    batch: Any,
    mesh: AnyMesh | AbstractMesh,
    *,
    extra: Any = None,
    axis_name: AxisName = "data",
    links: Links | None = None,
    gradient_ms: float | None = None,
    candidates: Iterable[Compressor] = CANDIDATES,
    overlap: float = 0.0,
    least_kept: float = 0.2,
    network_share: float = 0.1,
    micro_batches: int = 1,
    repeats: int = 5,
) -> Plan:
    """Predicts a training step with each candidate, and chooses one of the fastest, or `dense`.

    ``step = gradient + update + max(0, network - overlap · gradient)``. The gradient is the forward
    and backward pass of one worker's rows, measured on this device. The update is that of the
    optimizer without its collectives: compression, the decoding of all workers' messages, and what
    follows. It is measured too, with its kernel launches on a GPU. The network is the sum of
    the times that `links` have for the collectives of the traced step, those of the loss and of
    other checks included.

    All processes measure at the same time, so if they share processors, that is in the numbers;
    the slowest process counts. The choice is the candidate with the shortest step. Steps that
    differ by less than 5 % count as equal, and among them the one that keeps most of the gradient
    wins: `dense` where the network is hidden or fast. `least_kept` is a floor for what is kept,
    and no promise of accuracy. For a compressor that changes with the step, such as a `switch`, the
    update is that of the first step, and the network that of its largest messages.

    All processes call it together, and get the same plan. It compiles one program for the gradient
    and two larger ones for each candidate.

    Args:
      loss_fn: As for `make_train_step`.
      optimizer: compressor -> Optax chain, such as
        ``lambda one: optax.chain(compress(one), optax.adam(1e-3))``.
      params: The parameters, whole on each device.
      batch: From `shard_batch`; for a mesh without devices, the rows of one worker.
      mesh: The mesh of the workers. With an `AbstractMesh` of any number of workers, give `links`.
      extra: As for `make_train_step`; None for ``{}``.
      axis_name: The axis, or axes, of the workers.
      links: From `measure` or `ideal_links`; None measures.
      gradient_ms: The time of the forward and backward pass, instead of measuring it here: that of
        the device which will train.
      candidates: Compressors to choose from; `dense` is compared with them in any case.
      overlap: The share of the gradient's time behind which communication hides, from 0 to 1. XLA
        on CPUs hides none. On GPUs, if the step sends in buckets, it is at most the share of the
        backward pass, about 2/3.
      least_kept: The least share of the gradient's energy that a step must send, in every kind of
        array, such as matrices or biases; candidates below it are shown and not chosen. At 0 only
        those are excluded whose error is larger than the gradient. It is measured with an empty
        memory, in the second step on one gradient, since low rank begins with random factors, and
        on one worker alone: there `hierarchical` sends all, and `int_sum` has more levels than
        among many. The momentum that `ef21_sgdm` holds back counts as lost.
      network_share: The share of the time that averaging may take, for `Plan.period`.
      micro_batches: As for `make_train_step`.
      repeats: Timed runs of each program.

    Returns:
      A `Plan`; print it.

    Raises:
      ValueError: if a number is out of its range, if a parameter is an integer, if the mesh has no
        devices and `links` is None, if it has axes over which a model is sharded, if `links` are of
        other axes, if the batch is not split over the workers, if its gradient is not finite, if
        `overlap` is given with micro-batches, if a candidate needs the loss or the rate of the
        link, or if its update communicates inside a loop.

    References:
      Agarwal et al., `On the Utility of Gradient Compression in Distributed Training Systems
      <https://arxiv.org/abs/2103.00543>`_, 2022
      Wang et al., `Espresso: Revisiting Gradient Compression from the System Perspective
      <https://arxiv.org/abs/2205.14465>`_, 2022
    """
    axes = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    check_mesh(mesh, axes)
    check_numbers(gradient_ms, overlap, least_kept, network_share, micro_batches, repeats)
    candidates = tuple(candidates)
    check_candidates(optimizer, candidates)
    check_differentiable(params)
    check_batch(batch, mesh, axis_name)
    if links is None:
        links = measure(mesh, axis_name)
    extra = {} if extra is None else extra
    sizes = {axis: mesh.shape[axis] for axis in axes}
    own_params, own_extra, own_batch = (jax.tree.map(_own, one) for one in (params, extra, batch))
    part = jax.tree.map(lambda x: x[: max(1, len(x) // micro_batches)], own_batch)
    devices = jax.local_devices()[:1] if isinstance(mesh, AbstractMesh) else mesh.local_devices
    run = on_each(gradient(loss_fn), (own_params, own_extra, part), devices, axes)
    grads = jax.tree.map(_own, jax.block_until_ready(run()))
    if gradient_ms is None:
        gradient_ms = micro_batches * agreed_milliseconds(run, repeats)

    options = []
    for one in (dense(), *(x for x in candidates if not is_dense(x))):
        chain = optimizer(one)
        check_link("what optimizer makes", chain, "optax.chain(compress(one), optax.adam(1e-3))")
        state = jax.eval_shape(chain.init, own_params)
        if needed := given_names(state):
            raise ValueError(
                f"plan takes compressors that need nothing but gradients; {one!r} needs"
                f" {', '.join(sorted(needed))}. Plan with its levels instead."
            )
        sent = _traffic(loss_fn, chain, params, extra, own_batch, mesh, axis_name, micro_batches)
        options.append(
            Option(
                compressor=one,
                sent=sent,
                network_ms=links.ms(sent.collectives),
                exposed_ms=0.0,
                update_ms=update_ms(chain, grads, own_params, sizes, devices, repeats),
                step_ms=0.0,
                kept=kept_energy(one, grads, devices, axes),
                state_bytes=sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state)),
            )
        )

    compiled: dict[int, Callable] = {}  # by the identity of a compressor

    def steps(compressor: Compressor) -> tuple[Callable, tuple]:
        if isinstance(mesh, AbstractMesh):
            raise ValueError("this plan is for a mesh without devices, which takes no steps.")
        chain = optimizer(compressor)
        if id(compressor) not in compiled:
            compiled[id(compressor)] = make_train_step(
                loss_fn, chain, mesh, axis_name, micro_batches, donate=False
            )
        state = init_state(chain, params, mesh, axis_name)
        return compiled[id(compressor)], (params, state, extra, batch)

    workers = number_of_workers(mesh, axis_name)
    found = Plan(
        workers, gradient_ms, overlap, least_kept, network_share, links, tuple(options), steps
    )
    return found.over(links)


def _traffic(
    loss_fn: Callable,
    chain: optax.GradientTransformation,
    params: Any,
    extra: Any,
    own_batch: Any,
    mesh: AnyMesh | AbstractMesh,
    axis_name: AxisName,
    micro_batches: int,
) -> Traffic:
    """The collectives of a whole step, traced on shapes."""
    workers = number_of_workers(mesh, axis_name)
    abstract = mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh
    params, extra = (jax.tree.map(shape_of, one) for one in (params, extra))
    state = map_per_worker(
        lambda x: jax.ShapeDtypeStruct((workers, *x.shape), x.dtype),
        jax.eval_shape(chain.init, params),
    )
    batch = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((workers * x.shape[0], *x.shape[1:]), x.dtype), own_batch
    )
    step = make_train_step(loss_fn, chain, abstract, axis_name, micro_batches)
    return traffic_of_jaxpr(step.trace(params, state, extra, batch).jaxpr).over(axis_name)


def _own(x: Any) -> Any:
    """This process's first part of an array of all processes, on its device."""
    return x.addressable_data(0) if isinstance(x, jax.Array) else x
