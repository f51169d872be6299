"""What one worker computes in a step, without its network: measured on this process's device."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import ClosedJaxpr
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxcompress.base import Compressor
from jaxcompress.distributed.agreed_numbers import agreed, agreed_milliseconds
from jaxcompress.distributed.loss_function import checked, with_extra
from jaxcompress.feedback.memories import is_memory
from jaxcompress.ops.trees import energy
from jaxcompress.planning.without_network import without_network
from jaxcompress.transform import compress

# For a program that runs once: LLVM optimises nothing.
COMPILE_FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Update(NamedTuple):
    """The traced update of an optimizer, seen from one worker, and its inputs."""

    jaxpr: ClosedJaxpr
    inputs: tuple[Any, ...]  # gradients, state, parameters; arrays or their shapes


def traced_update(
    optimizer: optax.GradientTransformation, grads: Any, params: Any, sizes: Mapping[str, int]
) -> Update:
    """The program of ``optimizer.update`` among so many workers along each axis; shapes suffice."""
    grads, params = (jax.tree.map(shape_of, tree) for tree in (grads, params))
    state = jax.eval_shape(optimizer.init, params)
    traced = jax.make_jaxpr(optimizer.update, axis_env=list(sizes.items()))
    return Update(traced(grads, state, params), (grads, state, params))


def update_ms(
    optimizer: optax.GradientTransformation,
    grads: Any,
    params: Any,
    sizes: Mapping[str, int],
    devices: Sequence[Any],
    repeats: int,
) -> float:
    """The time of an update without its collectives: compression, decoding of all messages, and
    what follows.
    """
    update = traced_update(optimizer, grads, params, sizes)
    inputs = jax.tree.leaves((grads, jax.jit(optimizer.init)(params), params))
    run = on_each(without_network(update.jaxpr, sizes), inputs, devices, tuple(sizes))
    jax.block_until_ready(run())
    return agreed_milliseconds(run, repeats)


def gradient(loss_fn: Callable) -> Callable:
    """``(params, extra, batch) -> gradient`` of one worker."""
    loss_fn = checked(with_extra(loss_fn))

    def run(params, extra, batch):
        return jax.grad(lambda params: loss_fn(params, extra, batch)[0])(params)

    return run


def on_each(
    function: Callable,
    arguments: Sequence[Any],
    devices: Sequence[Any],
    axes: tuple[str, ...],
    compiler_options: dict[str, Any] | None = None,
) -> Callable[[], Any]:
    """Runs `function` on all these devices at once, each as the only worker along `axes`.

    Devices that share processors slow each other, as they do in training. The arguments are placed
    once, and the compiled program is kept.
    """
    shape = (len(devices), *(1,) * len(axes))
    names = ("device".ljust(max(map(len, axes)) + 1, "_"), *axes)  # longer than any other
    mesh = Mesh(np.array(devices).reshape(shape), names, axis_types=(AxisType.Auto,) * len(names))
    run = jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False),
        compiler_options=compiler_options,
    )
    placed = jax.device_put(tuple(arguments), NamedSharding(mesh, P()))
    return lambda: run(*placed)


def kept_energy(
    compressor: Compressor, grads: Any, devices: Sequence[Any], axes: tuple[str, ...]
) -> float:
    """The least ``1 - |g - sent|² / |g|²`` over kinds of arrays, in a step without a memory.

    It is the second step on one gradient: low rank begins with random factors.
    Arrays with equally many axes are of one kind: matrices have 2, norms and biases 1. What travels
    dense keeps 1, by the default of `compress`. Rounding without bias may lose more than there was,
    and keeps less than 0. The least over all processes, each with its own gradient. ValueError if
    one is not finite.
    """
    optimizer = compress(compressor, axes)

    def energies(grads):
        _, state = optimizer.update(grads, optimizer.init(grads))
        empty = jax.tree.map(
            lambda node: jax.tree.map(jnp.zeros_like, node) if is_memory(node) else node,
            state,
            is_leaf=is_memory,
        )
        sent, _ = optimizer.update(grads, empty)
        lost = jax.tree.map(lambda x, y: energy(x - y), grads, sent)
        return jax.tree.leaves(lost), [energy(x) for x in jax.tree.leaves(grads)]

    lost, whole = jax.device_get(on_each(energies, [grads], devices[:1], axes, COMPILE_FAST)())
    kinds: dict[int, list[float]] = {}
    for x, one, all_of_it in zip(jax.tree.leaves(grads), lost, whole, strict=True):
        sums = kinds.setdefault(x.ndim, [0.0, 0.0])
        sums[0] += float(one)
        sums[1] += float(all_of_it)
    kept = [1 - one / all_of_it for one, all_of_it in kinds.values() if all_of_it]
    # NumPy's minimum keeps NaN, wherever it stands.
    (found,) = agreed([float(np.min(kept, initial=1.0))], np.min)
    if math.isnan(found):
        raise ValueError(
            "the gradient of this batch is not finite, so it has no error. Plan with parameters and"
            " a batch that can be trained."
        )
    return found


def shape_of(x: Any) -> jax.ShapeDtypeStruct:
    """The shape and dtype of an array."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
