"""The command, and that the page is up to date."""

import pytest

from benchmarks.scheme_survey.__main__ import PAGE, RESULTS, Options
from benchmarks.scheme_survey.table import page


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="no scheme is called top_j; choose from dense, one_phase"):
        Options(only=("top_k", "top_j"))


def test_the_page_shows_what_was_measured():
    assert page(RESULTS.read()) in PAGE.read_text()
