"""The files, tables and plots of compiled programs; compiling takes minutes each."""

import pytest

from benchmarks.common import results
from benchmarks.compiled import __main__ as compiled
from benchmarks.compiled.cases import PROGRAMS, Case, Options


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    return tmp_path


def row(case: Case, **columns):
    columns = {
        "requested_bytes": 1,
        "wire_bytes": 1,
        "collectives": 1,
        "temp_copies": "1.0",
    } | columns
    when = {"overlapping": "", "early": "", "backward_between": ""}
    return case._asdict() | columns | when | {"commit": "abc"}


def test_a_program_replaces_its_earlier_rows():
    first, second = (
        Case("cpu", 8, "dense()", "", "default"),
        Case("cpu", 2, "dense()", "", "default"),
    )
    for case, size in [(first, 1), (second, 2), (first, 3)]:
        PROGRAMS.save([row(case, wire_bytes=size)])
    assert [(each["workers"], each["wire_bytes"]) for each in PROGRAMS.read()] == [
        ("2", "2"),
        ("8", "3"),
    ]


def test_without_cpus_and_tpus_there_is_no_plot_of_bytes(folder, monkeypatch):
    monkeypatch.setattr(compiled, "write_between", lambda *_: None)
    PROGRAMS.save([row(Case("h100", 8, "dense()", "", "default"))])
    compiled.main(Options(measure=False))
    assert not (folder / "compiled.png").exists()


def test_tables_and_plots_come_from_the_files_alone(folder, capsys):
    case = Case("cpu", 8, "dense()", "", "default")
    PROGRAMS.save([row(case)])
    compiled.main(Options(measure=False))
    assert "| cpu | 8 | dense() |" in capsys.readouterr().out
    assert (folder / "compiled.png").exists()
