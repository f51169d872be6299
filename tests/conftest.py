"""Eight virtual workers on one CPU, before any backend starts; and room for the programs that the
tests compile.
"""

import gc
import os
from pathlib import Path

import jax
import jaxtyping
import pytest
from fast_compilation import FAST_COMPILATION

import jaxcompress

jaxcompress.virtual_cpu_workers(8)

# The flags are read when the backend starts. Processes that a test starts inherit none of them.
_flags = os.environ.get("XLA_FLAGS")
os.environ["XLA_FLAGS"] = f"{_flags or ''} {FAST_COMPILATION}"
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
    ops = ("ops.low_rank", "ops.merging", "ops.orthogonal", "ops.serialization")
    for module in ("compressors.builders.joined", *ops):
        monkeypatch.setattr(f"jaxcompress.{module}.platform", lambda: "gpu")


def pytest_collection_modifyitems(items):
    """Tests of one group follow one another in a single process too: they share what they
    compile.
    """
    places: dict[tuple, int] = {}

    def place(item: pytest.Item) -> int:
        group = item.get_closest_marker("xdist_group")
        return places.setdefault((item.path, group.args[0] if group else item.nodeid), len(places))

    # In the order of the first test of each group: dictionaries and sorting keep it.
    for item in items:
        place(item)
    items.sort(key=place)


def pytest_collection_finish():
    """What is imported by now stays; a collection of garbage need not look at it again. Tracing
    makes so many objects that looking after every 700 new ones takes 8 % of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


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
