"""The table of unsent energies."""

import pytest

import jaxcompress
from benchmarks.common.training_tasks import TASKS
from benchmarks.unsent.__main__ import COMPRESSORS, cell, table


def row(**changes):
    values = {"task": next(iter(TASKS)), "compressor": "error_feedback(top_k(0.01))"}
    return values | {"unsent_energy": "0.9312", "memory_growth": "1.02"} | changes


@pytest.mark.parametrize("text", COMPRESSORS)
def test_every_compressor_is_one(text):
    assert repr(jaxcompress.parse(text)) == text


def test_a_cell_has_the_growth_of_a_memory():
    assert cell(row()) == "0.93 (1.02)"
    assert cell(row(memory_growth="")) == "0.93"
    assert cell(row(unsent_energy="nan")) == "diverges"


def test_a_row_for_each_compressor():
    first, second, *_ = TASKS
    assert table([row(), row(task=second)]) == [
        {
            "compressor": "`error_feedback(top_k(0.01))`",
            first: "0.93 (1.02)",
            second: "0.93 (1.02)",
        }
    ]
