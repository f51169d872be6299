"""Which programs there are, and what is kept of them; compiling takes minutes each."""

import pytest

from benchmarks import compiled, report
from benchmarks.compiled import SWEPT, Case, Options
from benchmarks.routes import COMPRESSORS
from benchmarks.schedule import Span
from jaxcompress import Collective


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(compiled, "RESULTS", tmp_path)
    return tmp_path


def row(case: Case, **columns):
    columns = {"asked_bytes": 1, "wire_bytes": 1, "collectives": 1, "temp_copies": "1.0"} | columns
    return case._asdict() | columns | {"overlapping": "", "early": "", "backward_between": ""}


def test_buckets_are_tried_on_the_fewest_chips_only():
    cases = list(compiled._of_platform("tpu", Options()))
    assert len(cases) == len(set(cases))
    assert {case.workers for case in cases if case.buckets} == {8}
    assert {case.compressor for case in cases if case.flags == "asynchronous"} == set(SWEPT)
    assert [case.compressor for case in cases if case.workers == 256] == COMPRESSORS


def test_words_choose_compressors_and_finished_programs_are_kept():
    options = Options(platform=("cpu",), workers=(8,), only=("dense", "power_sgd"))
    assert [case.compressor for case in compiled._chosen(options)] == COMPRESSORS[:2]
    done = Case("cpu", 8, "dense()", "", "default")
    compiled._save("compiled.csv", done, [row(done)])
    assert [case.compressor for case in compiled._chosen(options)] == COMPRESSORS[1:2]


def test_a_word_that_no_compressor_contains_is_refused():
    with pytest.raises(ValueError, match=r"no compressor contains any of the words \('nosuch',\)"):
        Options(only=("nosuch",))


def test_a_program_takes_the_place_of_its_earlier_rows():
    first, second = Case("cpu", 8, "dense()", "", "default"), Case("cpu", 2, "dense()", "", "default")
    for case, size in [(first, 1), (second, 2), (first, 3)]:
        compiled._save("compiled.csv", case, [row(case, wire_bytes=size)])
    assert [(each["workers"], each["wire_bytes"]) for each in report.read_csv("compiled.csv")] == [
        ("2", "2"),
        ("8", "3"),
    ]


def test_the_overlap_of_a_program_is_weighted_by_bytes():
    small, large = (Collective("all-gather", ("uint32",), size, 2) for size in (100, 300))
    found = [Span(small, False, 1.0, 0.0, 0.0), Span(large, True, 0.2, 0.8, 0.5)]
    assert compiled._overlap(found) == {"overlapping": 1, "early": 1, "backward_between": "0.600"}


def test_tables_and_pictures_come_from_the_files_alone(results, capsys):
    case = Case("cpu", 8, "dense()", "", "default")
    compiled._save("compiled.csv", case, [row(case)])
    compiled.main(Options(platform=("none",)))
    assert "| cpu | 8 | dense() |" in capsys.readouterr().out
    assert (results / "compiled.png").exists()
