"""Every compressor of the list can be built."""

import pytest

from benchmarks.convergence.__main__ import COMPRESSORS
from jaxcompress import parse


@pytest.mark.parametrize("text", COMPRESSORS)
def test_every_compressor_of_the_list_has_an_expression(text):
    assert repr(parse(text)) == text
