"""How much of the updates survives compression."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcompress._compat import vary
from jaxcompress.base import Compressor, PerWorker, expressible
from jaxcompress.feedback.error_feedback import error_memory


class Metrics(NamedTuple):
    """One worker's measurements of one step; float32 scalars."""

    compression_error: jax.Array  # |carried - sent|^2 / |carried|^2, where carried = update + memory
    kept_energy: jax.Array  # |sent|^2 / |carried|^2
    error_norm: jax.Array  # |memory| after the step


class MonitorState(NamedTuple):
    """The last step's measurements, and the state of what is measured."""

    metrics: PerWorker  # Metrics
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
      >>> from jaxcompress.compressors.top_k import top_k
      >>> monitor(top_k(0.01)).expression
      'monitor(top_k(0.01))'
    """
    if not isinstance(inner, Compressor):
        raise ValueError(f"monitor wraps a compressor, as in monitor(error_feedback(top_k(0.01))); got {inner!r}.")

    def init(key, params):
        nothing = Metrics(*(jnp.float32(x) for x in (0, 1, 0)))
        return MonitorState(PerWorker(nothing), inner.init(key, params))

    def reduce(key, updates, state, axis_name):
        carried = jax.tree.map(jnp.add, updates, error_memory(state.inner, updates))
        reduced, inner_state = inner.reduce(key, updates, state.inner, axis_name)
        energy = _energy(carried)
        lost = _energy(jax.tree.map(jnp.subtract, carried, reduced.sent))
        metrics = Metrics(
            compression_error=jnp.where(energy == 0, 0.0, lost / energy),
            kept_energy=jnp.where(energy == 0, 1.0, _energy(reduced.sent) / energy),
            error_norm=jnp.sqrt(_energy(error_memory(inner_state, updates))),
        )
        # With no array to measure they are constants, and a scan or a switch around would see another type.
        return reduced, MonitorState(PerWorker(vary(metrics, axis_name)), inner_state)

    return Compressor(init, reduce, inner.message_bits, remembers=inner.remembers)


def monitor_metrics(state: Any) -> dict[str, jax.Array]:
    """The measurements of the first `monitor` in an optimizer's state, one entry a worker; empty if there is none.

    Outside a step the arrays have the shape ``(workers,)``.
    """
    leaves = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, MonitorState))
    found = [leaf for leaf in leaves if isinstance(leaf, MonitorState)]
    return found[0].metrics.value._asdict() if found else {}


def _energy(tree: Any) -> jax.Array:
    """|tree|^2 in float32."""
    squares = [jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(tree)]
    return sum(squares, jnp.float32(0))
