"""The command."""

import pytest

from benchmarks.scheme_survey.__main__ import Options


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="no scheme is called top_j; choose from dense, one_phase"):
        Options(only=("top_k", "top_j"))
