"""What the C library does with large arrays that a CPU program has freed."""

import ctypes
import os
from typing import Any

import jax

# From malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
NEVER = -1
# How a user of glibc chooses: MALLOC_ARENA_MAX=8, or GLIBC_TUNABLES=glibc.malloc.arena_max=8.
CHOICES = ("arena_max", "mmap_max", "mmap_threshold", "trim_threshold")
COMPILED = "/jax/core/compile/backend_compile_duration"
# A shorter compilation leaves few blocks.
LONG_SECONDS = 1.0
SIZES = [2**power for power in range(20, 12, -1)]


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory for the next arrays (`initialize_processes`)."""
    if _chosen():
        return
    libc = ctypes.CDLL(None)
    # Other C libraries have no mallopt.
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
        # In the heap of a thread, an array of 64 MiB or more is always mapped and unmapped.
        libc.mallopt(M_ARENA_MAX, 1)
    # From glibc 2.33 on.
    if hasattr(libc, "mallinfo2"):
        jax.monitoring.register_event_duration_secs_listener(_take_leftovers)


def _chosen() -> bool:
    """Whether the user has made this choice in the environment."""
    variables = {name.removesuffix("_") for name in os.environ}
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return any(
        f"MALLOC_{each.upper()}" in variables or f"malloc.{each}" in tunables for each in CHOICES
    )


def _take_leftovers(event: str, duration_secs: float, **_: Any) -> None:
    if event == COMPILED and duration_secs >= LONG_SECONDS:
        take_free_blocks()


def take_free_blocks() -> None:
    """Takes the free blocks that compilations have left, so that no step searches them.

    LLVM leaves tens of thousands, of all sizes. For each array glibc would look among them for the
    smallest that fits. The blocks stay taken, but their pages go back to the kernel. It needs glibc
    2.33 or newer, with one heap that grows by `sbrk`.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_size_t
    libc.free.argtypes = [ctypes.c_size_t]
    libc.sbrk.argtypes, libc.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_size_t
    libc.mallinfo2.restype = _Mallinfo2
    libc.malloc_trim(0)
    # From here to its end, the heap is one free block.
    end = libc.sbrk(0) - libc.mallinfo2().keepcost
    for size in SIZES:
        while 0 < (block := libc.malloc(size)) < end:
            pass
        libc.free(block)


class _Mallinfo2(ctypes.Structure):
    """The struct of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    )
