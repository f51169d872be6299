"""What the C library does with large arrays that a CPU program has freed."""

import ctypes
import os
import sys

import jax

# From malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
NEVER = -1
# How a user of glibc chooses: MALLOC_ARENA_MAX=8, or GLIBC_TUNABLES=glibc.malloc.arena_max=8.
CHOICES = ("arena_max", "mmap_max", "mmap_threshold", "trim_threshold")


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory for the next arrays (`initialize_processes`)."""
    if jax.config.values["jax_platforms"] != "cpu" or sys.platform != "linux" or _chosen():
        return
    # Other C libraries have no mallopt.
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, NEVER)
        # In the heap of a thread, an array of 64 MiB or more is always mapped and unmapped.
        mallopt(M_ARENA_MAX, 1)


def _chosen() -> bool:
    """Whether the user has made this choice in the environment."""
    variables = {name.removesuffix("_") for name in os.environ}
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return any(
        f"MALLOC_{each.upper()}" in variables or f"malloc.{each}" in tunables for each in CHOICES
    )
