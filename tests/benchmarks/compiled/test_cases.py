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
    assert [case.compressor for case in chosen(options, "abc")] == AT_SCALE[:2]
    done = Case("cpu", 8, "dense()", "", "default")
    PROGRAMS.save([done._asdict() | {"commit": "abc"}])
    assert [case.compressor for case in chosen(options, "abc")] == AT_SCALE[1:2]
    assert [case.compressor for case in chosen(options, "def")] == AT_SCALE[:2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"only": ("nosuch",)}, "no compressor contains 'nosuch'"),
        ({"workers": (3,)}, r"powers of two from 2 on; got \(3,\)"),
        ({"workers": (4,)}, r"workers of tpu must be some of \[8, .*\]; got \(4,\)"),
        ({"bucket_mib": (16.0, 0.0)}, r"bucket_mib must be positive; got \(16.0, 0.0\)"),
    ],
)
def test_invalid_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Options(**arguments)


def test_without_buckets_there_are_whole_messages_only():
    assert {case.buckets for case in of_platform("tpu", Options(bucket_mib=()))} == {""}
