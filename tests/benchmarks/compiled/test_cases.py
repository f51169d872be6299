"""Which programs are compiled, and which are skipped."""

import pytest

from benchmarks.common import results
from benchmarks.common.expressions import AT_SCALE
from benchmarks.compiled.cases import PROGRAMS, SWEPT, Case, Options, chosen, of_platform


def test_buckets_are_tried_on_the_fewest_chips_only():
    cases = list(of_platform("tpu", Options()))
    assert len(cases) == len(set(cases))
    assert {case.workers for case in cases if case.buckets} == {8}
    assert {case.compressor for case in cases if case.flags == "asynchronous"} == set(SWEPT)
    assert [case.compressor for case in cases if case.workers == 256] == AT_SCALE


def test_filters_choose_compressors_and_finished_programs_are_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    options = Options(platform=("cpu",), workers=(8,), only=("dense", "power_sgd"))
    assert [case.compressor for case in chosen(options)] == AT_SCALE[:2]
    done = Case("cpu", 8, "dense()", "", "default")
    PROGRAMS.save([done._asdict()])
    assert [case.compressor for case in chosen(options)] == AT_SCALE[1:2]


def test_a_filter_that_no_compressor_matches_is_refused():
    with pytest.raises(ValueError, match=r"no compressor contains 'nosuch'"):
        Options(only=("nosuch",))
