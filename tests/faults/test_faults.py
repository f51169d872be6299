"""Every fault of benchmarks.faults happens to a real run, which keeps its promise."""

import pytest
from fast_compilation import FAST_COMPILATION

from benchmarks.faults.__main__ import SCENARIOS
from benchmarks.hosts.namespaces import missing

# All others are slow tests. tests/distributed/test_watchdog.py kills processes, and
# tests/train/test_checkpoint.py damages and removes checkpoints.
QUICK = ("flipped_bit", "other_JAX_ENABLE_X64")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS],
)
def test_the_run_keeps_its_promise(name, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", FAST_COMPILATION)
    scenario = SCENARIOS[name]
    if scenario.needs_root and missing():
        pytest.skip(f"needs {'; and '.join(missing())}")
    scenario.run(tmp_path)
