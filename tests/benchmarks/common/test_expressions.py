"""Every public scheme has one expression."""

import pytest

import jaxcompress
from benchmarks.common import expressions as schemes
from benchmarks.common.expressions import SCHEMES, TRAINED, example, public_schemes


def test_only_constructors_of_compressors_are_schemes():
    assert {"top_k", "dense", "error_feedback", "switch"} <= set(public_schemes())
    assert not {"by_shape", "warmup", "compress", "Compressor", "sparse"} & set(public_schemes())
    assert public_schemes("jaxcompress.compressors.low_rank") == [
        "power_sgd",
        "acp_sgd",
        "batched_power_sgd",
    ]
    assert "svd" in public_schemes("jaxcompress.contrib")


def test_every_expression_in_trained_is_of_a_scheme_and_differs_from_the_default():
    assert set(TRAINED) <= set(SCHEMES)
    assert [
        name
        for name in public_schemes("jaxcompress.compressors")
        if TRAINED.get(name) == default(name)
    ] == []


def default(name: str) -> str:
    return f"error_feedback({example(name)})"


def test_other_schemes_are_trained_with_the_example_of_their_docstring():
    assert SCHEMES["int8"] == "error_feedback(int8())"
    assert SCHEMES["threshold"] == "error_feedback(threshold(0.001, capacity=0.05))"


def test_a_docstring_without_an_example_is_reported(monkeypatch):
    monkeypatch.setattr(
        schemes.jaxcompress, "top_k", test_only_constructors_of_compressors_are_schemes
    )
    with pytest.raises(ValueError, match="the docstring of top_k has no example"):
        example("top_k")


@pytest.mark.parametrize("name", SCHEMES)
def test_each_is_an_expression_with_its_scheme_in_it(name):
    assert repr(jaxcompress.parse(SCHEMES[name])) == SCHEMES[name]
    assert f"{name}(" in SCHEMES[name]
