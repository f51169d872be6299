"""Eight virtual workers on one CPU, before any backend starts; and room for the programs that the
tests compile.
"""

import gc
import os
from pathlib import Path

import jax
import jaxtyping
import pytest

import jaxcompress

jaxcompress.virtual_cpu_workers(8)

# The tests compile thousands of small programs and run each a few times. Without LLVM's
# optimisation and the newer code generator of fusions, and with each program in one piece, that
# takes a third of the time. XLA's own passes, and so every count of bytes and collectives, are the
# same. The flags are read when the backend starts; processes that a test starts are to run as a
# user's do, so they do not inherit them.
_flags = os.environ.get("XLA_FLAGS")
os.environ["XLA_FLAGS"] = " ".join(
    [
        _flags or "",
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        # Newer jaxlib has no other generator than the new one, and refuses flags it does not know.
        *(["--xla_cpu_use_fusion_emitters=false"] if jax.__version_info__ < (0, 11) else []),
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
)
jax.devices()
if _flags is None:
    del os.environ["XLA_FLAGS"]
else:
    os.environ["XLA_FLAGS"] = _flags


# Compiled programs keep pieces of memory mapped. Linux gives a process 65,530 of them, and beyond
# that the compiler crashes. So programs are forgotten in time.
MOST_MAPPINGS = 40_000


@pytest.fixture
def as_users_run_it(monkeypatch):
    """Without the tests' own checks of argument types, which would speak before the
    library does.
    """
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def on_gpus(monkeypatch):
    """Traces the programs of GPUs, which run here too."""
    for module in ("collectives.one_phase", "collectives.two_phase", "ops.low_rank"):
        monkeypatch.setattr(f"jaxcompress.{module}.platform", lambda: "gpu")


def pytest_collection_finish():
    """What is imported by now stays; a collection of garbage need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def forget_programs_before_there_are_too_many():
    """Looks once in a while: reading the list takes milliseconds."""
    yield
    _tests_done.append(None)
    maps = Path("/proc/self/maps")
    if (
        len(_tests_done) % 16 == 0
        and maps.exists()
        and maps.read_bytes().count(b"\n") > MOST_MAPPINGS
    ):
        _forget_programs()


_tests_done: list[None] = []


def _forget_programs() -> None:
    jax.clear_caches()
    gc.collect()
