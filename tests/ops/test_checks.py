"""What is refused, and in which words."""

import pytest

from jaxcompress import control_variate, error_feedback, qsgd, random_k, shared_top_k, sign, sign_majority, top_k
from jaxcompress.ops.checks import check_conserves, check_flag, check_integer


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None])
def test_what_is_no_integer_of_that_size_is_refused(value):
    with pytest.raises(ValueError, match=r"rank is how many, an integer of at least 1; got "):
        check_integer("rank", value, 1, "how many")
    check_integer("rank", 1, 1)


@pytest.mark.parametrize("value", [0, 1.0, float("inf"), [], (), None])
def test_what_is_no_bool_is_refused(value):
    with pytest.raises(ValueError, match="rescale is True or False; got "):
        check_flag("rescale", value)
    check_flag("rescale", False)


def test_a_compressor_outside_the_law_is_refused_by_name():
    with pytest.raises(ValueError, match=r"error_feedback .* sign_majority\(\) .* sign\(\) in its place"):
        check_conserves("error_feedback", sign_majority())
    check_conserves("error_feedback", sign())


def test_a_memory_inside_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"random_k sends other places then\. Put memories outside: error_feedback"):
        random_k(0.1, inner=error_feedback(top_k(0.1)))
    with pytest.raises(ValueError, match=r"shared_top_k sends other places then"):
        shared_top_k(0.1, inner=control_variate(qsgd(2), 0.1))
