"""The list has every scheme of the door once, each under the name that it shows."""

import pytest

import jaxcompress
from benchmarks import schemes
from benchmarks.schemes import SCHEMES, TRAINED, example, public_schemes


def test_only_what_makes_a_compressor_is_a_scheme():
    assert {"top_k", "dense", "error_feedback", "switch"} <= set(public_schemes())
    assert not {"by_shape", "warmup", "compress", "Compressor", "sparse"} & set(public_schemes())
    assert public_schemes("jaxcompress.compressors.low_rank") == ["power_sgd", "acp_sgd", "batched_power_sgd", "svd"]


def test_all_of_the_own_texts_are_of_schemes_and_say_more_than_the_default():
    assert set(TRAINED) <= set(SCHEMES)
    assert [name for name in public_schemes("jaxcompress.compressors") if TRAINED.get(name) == default(name)] == []


def default(name: str) -> str:
    return f"error_feedback({example(name)})"


def test_what_is_not_named_is_trained_as_its_docstring_shows_it():
    assert SCHEMES["int8"] == "error_feedback(int8())"
    assert SCHEMES["threshold"] == "error_feedback(threshold(0.001, capacity=0.05))"


def test_a_docstring_without_an_example_is_named(monkeypatch):
    monkeypatch.setattr(schemes.jaxcompress, "top_k", test_only_what_makes_a_compressor_is_a_scheme)
    with pytest.raises(ValueError, match="the docstring of top_k has no example"):
        example("top_k")


@pytest.mark.parametrize("name", SCHEMES)
def test_each_is_an_expression_with_its_scheme_in_it(name):
    assert jaxcompress.parse(SCHEMES[name]).expression == SCHEMES[name]
    assert f"{name}(" in SCHEMES[name]
