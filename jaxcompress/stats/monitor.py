"""How much of the updates survives compression."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress._compat import vary
from jaxcompress.base import Compressor, PerWorker, expressible, facts_of
from jaxcompress.ops.memories import memory_inside
from jaxcompress.ops.offload import fetched


class Energies(NamedTuple):
    """One worker's measurements of one step: sums of squares, float32 scalars, which add up over groups of arrays."""

    carried: jax.Array  # |c|^2, where c = update + memory
    lost: jax.Array  # |c - sent|^2
    sent: jax.Array  # |sent|^2
    memory: jax.Array  # |memory|^2 after the step


class MonitorState(NamedTuple):
    """The last step's measurements, and the state of what is measured."""

    energies: PerWorker  # Energies
    inner: Any


@expressible
def monitor(inner: Compressor) -> Compressor:
    """Measures `inner` on every step and changes nothing: compression error, kept energy, norm of the error memory.

    ``compression_error = |c - sent|^2 / |c|^2`` and ``kept_energy = |sent|^2 / |c|^2``, where ``c`` is the update plus
    the error memory that it found, if `inner` has one. A step of zeros has error 0 and kept energy 1. Only the arrays
    that are compressed count. Around a `switch` of several memories the ones that wait count too: put one memory
    around the `switch` instead.

    How it travels: as `inner`; each worker measures its own and sends nothing. Read it with `monitor_metrics`.

    Args:
      inner: What is measured; memories go inside: ``monitor(error_feedback(top_k(0.01)))``.

    Returns:
      A `Compressor` with `inner`'s results.

    Example:
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> monitor(top_k(0.01)).expression
      'monitor(top_k(0.01))'
    """
    if not isinstance(inner, Compressor):
        raise ValueError(f"monitor wraps a compressor, as in monitor(error_feedback(top_k(0.01))); got {inner!r}.")

    def init(key, params):
        nothing = Energies(*(jnp.float32(0) for _ in Energies._fields))
        return MonitorState(PerWorker(nothing), inner.init(key, params))

    def reduce(key, updates, state, axis_name):
        carried = jax.tree.map(jnp.add, updates, memory_inside(state.inner, updates))
        reduced, inner_state = inner.reduce(key, updates, state.inner, axis_name)
        energies = Energies(
            carried=_energy(carried),
            lost=_energy(jax.tree.map(jnp.subtract, carried, reduced.sent)),
            sent=_energy(reduced.sent),
            memory=_energy(memory_inside(inner_state, updates)),
        )
        # With no array to measure they are constants, and a scan or a switch around would see another type.
        return reduced, MonitorState(PerWorker(vary(energies, axis_name)), inner_state)

    return Compressor(init, reduce, inner.message_bits, otherwise=inner.otherwise, **facts_of(inner))


def monitor_metrics(state: Any) -> dict[str, jax.Array]:
    """The measurements in an optimizer's state, one entry a worker; empty if there is no `monitor`.

    Of several, such as those of the buckets of `compress`, the energies are added: what they measure is one update. One
    inside another is left out.

    Returns:
      ``compression_error``, ``kept_energy`` and ``error_norm``; outside a step each of shape ``(workers,)``.
    """
    nodes = jax.tree.leaves(fetched(state), is_leaf=lambda node: isinstance(node, MonitorState))
    found = [node.energies.value for node in nodes if isinstance(node, MonitorState)]
    if not found:
        return {}
    total = jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *found)
    return {
        "compression_error": jnp.where(total.carried == 0, 0.0, total.lost / total.carried),
        "kept_energy": jnp.where(total.carried == 0, 1.0, total.sent / total.carried),
        "error_norm": jnp.sqrt(total.memory),
    }


def _energy(tree: Any) -> jax.Array:
    """|tree|^2 in float32."""
    squares = [jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(tree)]
    return sum(squares, jnp.float32(0))
