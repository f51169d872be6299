"""Every compressor of the list can be measured and drawn."""

import pytest

from benchmarks.common.plotting import FAMILIES, family
from benchmarks.distortion.__main__ import COMPRESSORS, SHOWN, Options, of_other_gradients, table
from jaxcompress import parse


@pytest.mark.parametrize("text", COMPRESSORS)
def test_every_compressor_of_the_list_has_an_expression_and_a_family(text):
    assert repr(parse(text)) and family(text) in FAMILIES


def test_the_page_shows_the_middle_of_training_in_two_digits():
    assert set(SHOWN) <= set(COMPRESSORS)
    row = {"compressor": "int4()", "task": "simple_cnn on MNIST"}
    middle = row | {"stage": "middle", "relative_error": "0.01265", "bits_per_entry": "4.5132"}
    late = row | {"stage": "late", "relative_error": "0.5", "bits_per_entry": "4.5"}
    (line,) = table([middle, late], ["top_k(0.01)", "int4()"])
    assert line["compressor"] == "`int4()`"
    assert line["simple_cnn on MNIST"] == "0.013 (4.5)"
    assert line["resnet8 on CIFAR-10"] == "–"


def test_rows_of_other_gradients_are_those_beside_another_bound():
    row = {"task": "a", "stage": "late", "compressor": "sign()", "relative_error": "0.4"}
    bound = row | {"compressor": "bound: the largest 0.1", "relative_error": "0.2"}
    elsewhere = row | {"task": "b"}
    assert of_other_gradients([row, bound, elsewhere], [bound]) == []
    changed = bound | {"relative_error": "0.3"}
    assert of_other_gradients([row, bound, elsewhere], [changed]) == [row, bound]
    assert of_other_gradients([row], [bound]) == [row]


@pytest.mark.parametrize("wrong", [{"task": ("nothing",)}, {"only": ("nothing",)}])
def test_a_filter_that_nothing_matches_is_refused(wrong):
    with pytest.raises(ValueError, match="contains 'nothing'"):
        Options(**wrong)
