"""Filters that choose nothing are refused."""

import pytest

from benchmarks.common.filters import check_filters


def test_filters_that_match_and_no_filters_pass():
    check_filters(("qsgd", "nosuch"), ["qsgd(4)"])
    check_filters((), [])


def test_filters_without_a_match_are_refused():
    with pytest.raises(ValueError, match=r"no compressor contains 'nosuch' or 'none'"):
        check_filters(("nosuch", "none"), ["qsgd(4)"])
