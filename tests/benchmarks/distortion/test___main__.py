"""Every compressor of the list can be measured and drawn."""

import pytest

from benchmarks.common.plotting import FAMILIES, family
from benchmarks.distortion.__main__ import COMPRESSORS
from jaxcompress import parse


@pytest.mark.parametrize("text", COMPRESSORS)
def test_every_compressor_of_the_list_has_an_expression_and_a_family(text):
    assert repr(parse(text)) and family(text) in FAMILIES
