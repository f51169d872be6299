"""The list has every scheme of the door once, each under the name that it shows."""

import inspect

import pytest

import jaxcompress
from benchmarks.schemes import SCHEMES


def test_every_public_scheme_is_in_the_list():
    made = {name: getattr(jaxcompress, name) for name in jaxcompress.__all__}
    schemes = {
        name
        for name, one in made.items()
        if getattr(one, "expressible", False) and inspect.signature(one).return_annotation is jaxcompress.Compressor
    }
    assert set(SCHEMES) == schemes


@pytest.mark.parametrize("name", SCHEMES)
def test_each_is_an_expression_with_its_scheme_in_it(name):
    assert jaxcompress.parse(SCHEMES[name]).expression == SCHEMES[name]
    assert f"{name}(" in SCHEMES[name]
