"""Words that choose nothing are refused."""

import pytest

from benchmarks.words import check_words


def test_words_that_choose_and_no_words_at_all_pass():
    check_words(("qsgd", "nosuch"), ["qsgd(4)"])
    check_words((), [])


def test_words_that_no_text_contains_are_told():
    with pytest.raises(ValueError, match=r"no compressor contains any of the words \('nosuch',\)"):
        check_words(("nosuch",), ["qsgd(4)"])
