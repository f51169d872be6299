"""What JAX's profiler has timed."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
from jax.profiler import ProfileData


def profiled_events(work: Callable[[], None]) -> list[tuple[str, float]]:
    """Does `work`; the name and the seconds of each event in it, on all threads."""
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        with jax.profiler.trace(folder):
            work()
        return [
            (event.name, event.duration_ns / 1e9)
            for path in Path(folder).rglob("*.xplane.pb")
            for plane in ProfileData.from_file(str(path)).planes
            for line in plane.lines
            for event in line.events
        ]
