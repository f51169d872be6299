"""Every compressor of the list can be built."""

import pytest

from benchmarks.convergence.__main__ import COMPRESSORS, cell
from jaxcompress import parse


@pytest.mark.parametrize("text", COMPRESSORS)
def test_every_compressor_of_the_list_has_an_expression(text):
    assert repr(parse(text)) == text


@pytest.mark.parametrize(
    ("loss", "times", "shown"),
    [
        ("0.1063", "1.0", "0.106"),
        ("1.5178", "7.8", "1.518 (7.8)"),
        ("2.6", "73.2", "2.600 (73)"),
        ("352.9", "31.7", "diverges (32)"),
        ("nan", "9.9", "diverges (9.9)"),
    ],
)
def test_a_run_is_its_loss_and_its_saving(loss, times, shown):
    assert cell({"loss": loss, "times_fewer": times}) == shown
