"""Measures how much of the updates and the memory each step leaves unsent."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress._compat import vary
from jaxcompress.base import Compressor, PerWorker, parseable
from jaxcompress.distributed.offload import to_device
from jaxcompress.distributed.shards import PerShard
from jaxcompress.feedback.memories import memory_inside
from jaxcompress.ops.trees import energy


class Energies(NamedTuple):
    """One worker's squared norms in one step: float32 scalars, additive over groups of arrays."""

    carried: jax.Array  # |c|^2, where c = update + memory
    unsent: jax.Array  # |residual + memory after the step|^2
    memory: jax.Array  # |memory|^2 after the step


class MonitorState(NamedTuple):
    """The measurements of the last step, and the state of `inner`."""

    energies: PerWorker  # Energies
    inner: Any


@parseable
def monitor(inner: Compressor) -> Compressor:
    """Measures what `inner` leaves unsent in every step, and changes nothing.

    ``unsent_energy = |unsent|^2 / |c|^2``. Here ``c`` is the update plus the error memory before
    the step, and ``unsent`` is the residual plus the error memory after it. With a memory this is
    not the error of one compression: a memory holds the updates of many steps, so with
    ``top_k(0.01)`` it stays near 0.9, also where one gradient alone would lose a third. A step of
    zeros has 0. ``memory_norm`` is the norm of the error memory; it should level off. Only
    compressed arrays count. Around a `switch` of several memories, the unused ones count too: put
    one memory around the `switch` instead.

    How it travels: as `inner`. Each worker measures its own values and sends nothing. Read them
    with `monitor_metrics`.

    Args:
      inner: What is measured; memories go inside: ``monitor(error_feedback(top_k(0.01)))``.

    Returns:
      A `Compressor` with the results of `inner`.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> monitor(top_k(0.01))
      monitor(top_k(0.01))
    """
    if not isinstance(inner, Compressor):
        raise ValueError(
            f"monitor takes a compressor, such as error_feedback(top_k(0.01)); got {inner!r}."
        )

    def init(key, params):
        nothing = Energies(*(jnp.float32(0) for _ in Energies._fields))
        return MonitorState(PerWorker(nothing), inner.init(key, params))

    def reduce(key, updates, state, axis_name):
        carried = jax.tree.map(jnp.add, updates, memory_inside(state.inner, updates))
        reduced, inner_state = inner.reduce(key, updates, state.inner, axis_name)
        memory = memory_inside(inner_state, updates)
        unsent = jax.tree.map(jnp.add, reduced.residual, memory)
        energies = Energies(
            carried=energy(carried),
            unsent=energy(unsent),
            memory=energy(memory),
        )
        # Without arrays they are constants, whose type would differ inside a scan or a switch.
        return reduced, MonitorState(PerWorker(vary(energies, axis_name)), inner_state)

    return inner._replace(init=init, reduce=reduce, codec=None)


def monitor_metrics(state: Any) -> dict[str, jax.Array]:
    """The measurements in an optimizer's state, one entry per worker; empty without a `monitor`.

    The squared norms of several monitors, such as one per bucket of `compress`, are added, since
    they measure one update; so are those of the shards of a model. A `monitor` inside another is
    ignored.

    Returns:
      ``unsent_energy`` and ``memory_norm``; outside a step each of shape ``(workers,)``. On several
      hosts a process can read its own rows only; `mean_over_workers`, called by all, averages them.
    """
    if not (found := _energies(to_device(state))):
        return {}
    total = jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *found)
    return {
        "unsent_energy": jnp.where(total.carried == 0, 0.0, total.unsent / total.carried),
        "memory_norm": jnp.sqrt(total.memory),
    }


def _energies(state: Any) -> list[Energies]:
    """Those of all monitors in a state; of a sharded model, the sums over its shards."""
    found = []
    for node in jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, MonitorState | PerShard)):
        if isinstance(node, MonitorState):
            found.append(node.energies.value)
        elif isinstance(node, PerShard):
            own = _energies(node.value)
            found += [jax.tree.map(lambda x: x.sum(-1), one) for one in own] if node.axes else own
    return found
