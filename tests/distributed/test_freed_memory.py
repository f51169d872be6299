"""Whether memory that is freed comes back without the kernel: counted by its page faults."""

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
        *slow("import os; os.environ['MALLOC_ARENA_MAX'] = '8'\n"),
        "import os; os.environ['GLIBC_TUNABLES'] = 'glibc.malloc.mmap_threshold=131072'\n",
    ],
    ids=["any platform", "a variable", "another variable", "a tunable"],
)
def test_nothing_is_changed_for_other_devices_or_against_the_user(setting):
    assert min(faults(100, setting)) > ROUNDS * 100 * PAGES_PER_MIB // 2
