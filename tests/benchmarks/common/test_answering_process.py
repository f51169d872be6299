"""A process that answers lines."""

import sys
from pathlib import Path

import pytest

from benchmarks.common.answering_process import answering_process

UPPER = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"


def test_every_line_has_its_answer():
    with answering_process([sys.executable, "-c", UPPER], Path()) as worker:
        assert [worker.ask("one"), worker.ask("two")] == ["ONE", "TWO"]
    assert worker.process.poll() is not None


def test_an_early_end_is_an_error():
    with (
        answering_process([sys.executable, "-c", "pass"], Path()) as worker,
        pytest.raises(RuntimeError, match="ended without an answer"),
    ):
        worker.ask("one")
