"""The list of methods."""

import pytest

import jaxcompress
from benchmarks.network.methods import METHODS, Method, chosen


@pytest.mark.parametrize("method", [each.method for each in METHODS if each.framework == "jax"])
def test_a_compressor_is_written_as_the_library_writes_it(method):
    assert jaxcompress.unparse(jaxcompress.parse(method)) == method


def test_without_filters_all_are_chosen():
    assert chosen([]) == METHODS


def test_a_filter_chooses_by_framework_or_text():
    assert {method.framework for method in chosen(["torch"])} == {"torch"}
    assert chosen(["jax dense", "fp16"]) == [
        Method("jax", "dense()"),
        Method("torch", "DDP, fp16 hook"),
    ]
