"""Keeps memories in the host's memory between steps, and fetches them inside a step."""

from collections.abc import Sequence
from typing import Any

import jax


def to_device(state: Any) -> Any:
    """Moves arrays in host memory to the device; the others stay."""
    return jax.tree.map(
        lambda x: jax.device_put(x, jax.memory.Space.Device) if _on_host(x) else x, state
    )


def to_host(state: Any, like: Any) -> Any:
    """The inverse, after the step: moves to host memory the arrays that are there in `like`."""
    return jax.tree.map(
        lambda x, one: jax.device_put(x, jax.memory.Space.Host) if _on_host(one) else x, state, like
    )


def check_memory_kind(memory_kind: str | None, devices: Sequence[Any]) -> None:
    """ValueError unless `devices` have a memory of this name, or it is None."""
    # Only pinned host memory: transfers from it are fast, and XLA aborts on any other kind.
    there = {memory.kind for device in devices for memory in device.addressable_memories()}
    known = sorted(there & {"device", "pinned_host"})
    if memory_kind is not None and memory_kind not in known:
        raise ValueError(
            "memory_kind is where per-worker state is kept between steps, one of"
            f" {', '.join(map(repr, known))} on this backend, or None for the device's own; got"
            f" {memory_kind!r}."
        )


def _on_host(x: Any) -> bool:
    return jax.typeof(x).memory_space == jax.memory.Space.Host
