"""Memories that wait in the host's memory between steps, and are fetched to the device inside one."""

from collections.abc import Sequence
from typing import Any

import jax


def fetched(state: Any) -> Any:
    """Arrays that are in host memory, brought to the device; the others as they are."""
    return jax.tree.map(lambda x: jax.device_put(x, jax.memory.Space.Device) if _on_host(x) else x, state)


def returned(state: Any, like: Any) -> Any:
    """The inverse, after the step: to host memory what was there in `like`."""
    return jax.tree.map(lambda x, one: jax.device_put(x, jax.memory.Space.Host) if _on_host(one) else x, state, like)


def check_memory_kind(memory_kind: str | None, devices: Sequence[Any]) -> None:
    """ValueError unless `devices` have a memory of this name, or none is asked for."""
    # Steps fetch from pinned memory, so that the bus need not wait; XLA ends the process over any other of the host's.
    there = {memory.kind for device in devices for memory in device.addressable_memories()}
    known = sorted(there & {"device", "pinned_host"})
    if memory_kind is not None and memory_kind not in known:
        raise ValueError(
            f"memory_kind is where per-worker state is kept between steps, one of {', '.join(map(repr, known))} on "
            f"this backend, or None for the device's own; got {memory_kind!r}."
        )


def _on_host(x: Any) -> bool:
    return jax.typeof(x).memory_space == jax.memory.Space.Host
