"""Whether freed memory comes back without the kernel, by its page faults, and without a search."""

import platform
import sys

import pytest
from helpers import slow
from subprocesses import free_port, joined, lines_of, run_together

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc",
    reason="the allocator of Linux's glibc is meant",
)
ROUNDS, PAGES_PER_MIB = 10, 256
# Every round fills and frees an array, in a thread, as XLA does.
COUNTED = f"""
import resource, threading
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def count():
    for _ in range(2):  # what starts beside it may take a part of the first array's memory
        b'x' * (MIB << 20)
    before = faults()
    for _ in range({ROUNDS}):
        b'x' * (MIB << 20)
    print(faults() - before)
thread = threading.Thread(target=count)
thread.start()
thread.join()
"""


def faults(mebibytes: int, setting: str = "") -> list[int]:
    """Page faults of two processes that have joined, which fill and free memory."""
    port, body = free_port(), COUNTED.replace("MIB", str(mebibytes))
    programs = [setting + joined(body, process, 2, port) for process in (0, 1)]
    return [int(lines[-1]) for lines in lines_of(run_together(programs))]


# 64 MiB is the largest heap that glibc makes for a thread.
@pytest.mark.parametrize("mebibytes", [40, 100])
def test_freed_memory_is_kept_on_cpus(mebibytes):
    assert max(faults(mebibytes)) < 1_000


@pytest.mark.parametrize(
    "setting",
    [
        "import jax; jax.config.update('jax_platforms', None)\n",
        "import os; os.environ['MALLOC_TRIM_THRESHOLD_'] = '131072'\n",
        *slow(
            "import os; os.environ['MALLOC_ARENA_MAX'] = '8'\n",
            "import os; os.environ['GLIBC_TUNABLES'] = 'glibc.malloc.mmap_threshold=131072'\n",
        ),
    ],
    ids=["any platform", "a variable", "another variable", "a tunable"],
)
def test_nothing_is_changed_for_other_devices_or_against_the_user(setting):
    assert min(faults(100, setting)) > ROUNDS * 100 * PAGES_PER_MIB // 2


# Prints the bytes in free blocks of the heap, but for the block at its end.
COMPILED = """
import ctypes, jax
from jaxcompress.distributed import freed_memory
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = freed_memory._Mallinfo2
def free():
    found = libc.mallinfo2()
    print(found.fordblks - found.keepcost)
def sorted_often(x):
    for _ in range(20):
        x = jax.numpy.sort(x[1:] * 2)
    return x
freed_memory.LONG_SECONDS = LIMIT
jax.jit(sorted_often).lower(jax.numpy.ones(100)).compile()
free()
"""


def printed_after_compiling(limit: float, more: str = "") -> list[int]:
    """What one of two joined processes prints, if compilations of `limit` seconds count as long."""
    port, body = free_port(), COMPILED.replace("LIMIT", str(limit)) + more
    programs = [joined(body, process, 2, port) for process in (0, 1)]
    return [int(line) for line in lines_of(run_together(programs))[0]]


def test_the_blocks_that_a_long_compilation_leaves_are_not_searched():
    (without,) = printed_after_compiling(limit=0.01)
    (free,) = printed_after_compiling(limit=1_000)
    assert 2 * without < free
