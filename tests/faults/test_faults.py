"""Every fault of benchmarks.faults happens to a real run, which keeps its promise."""

import pytest

from benchmarks.faults.__main__ import SCENARIOS
from benchmarks.hosts.namespaces import missing

# Of each kind one; all others are slow tests.
QUICK = ("killed_1", "terminated", "flipped_bit", "removed_checkpoints", "other_JAX_ENABLE_X64")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS],
)
def test_the_run_keeps_its_promise(name, tmp_path):
    scenario = SCENARIOS[name]
    if scenario.needs_root and missing():
        pytest.skip(f"needs {'; and '.join(missing())}")
    scenario.run(tmp_path)
