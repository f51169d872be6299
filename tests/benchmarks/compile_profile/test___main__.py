"""The parts of XLA's time, from the events of a profiler."""

import pytest

from benchmarks.common import results
from benchmarks.compile_profile import __main__ as compile_profile
from benchmarks.compile_profile.__main__ import MODULE, PARTS, Options, main, parts, table
from benchmarks.compiled import gpu

EVENTS = [
    ("HLO Transforms:jit_step", 4.0),
    ("priority-fusion", 3.0),
    ("ScheduleGpuModule", 1.0),
    ("Compiling IR:fusion.1", 2.0),
    ("Compiling IR:fusion.2", 5.0),
    ("PTX->CUBIN", 1.5),
    ("PTX->CUBIN", 0.5),
    (MODULE, 3.5),
    (MODULE, 5.5),
]


def a_row(compressor, compile_s, commit="a"):
    seconds = {"trace_s": "1.0", "lower_s": "0.5", "compile_s": f"{compile_s}", "kernels": "9"}
    names = {"card": "b200", "workers": "8", "compressor": compressor, "commit": commit}
    return names | seconds | parts(EVENTS)


def test_events_are_added_up_by_part():
    assert parts(EVENTS) == {
        "passes_s": "4.0",
        "fusion_s": "3.0",
        "schedule_s": "1.0",
        "llvm_s": "7.0",
        "ptx_s": "2.0",
        "longest_s": "5.5",
        "modules": "2",
    }


def test_no_name_of_a_part_begins_with_another():
    names = [*PARTS.values(), MODULE]
    assert not [(a, b) for a in names for b in names if a != b and a.startswith(b)]


@pytest.mark.parametrize("name", [*PARTS.values(), MODULE])
def test_a_part_without_events_is_an_error(name):
    with pytest.raises(RuntimeError, match=f"no event of XLA named {name}"):
        parts([event for event in EVENTS if not event[0].startswith(name)])


def test_without_a_dense_program_there_is_no_table(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    compile_profile.RESULTS.save([a_row("error_feedback(top_k(0.01))", 25)])
    assert main(Options(measure=False)) == 0


def test_programs_are_compared_with_dense_of_the_same_commit():
    rows = [a_row("dense()", 10), a_row("error_feedback(top_k(0.01))", 25)]
    assert [line["× dense"] for line in table(rows)] == ["1.00", "2.50"]
    assert table(rows)[1]["JAX s"] == "1.5"
    others = [a_row("dense()", 10), a_row("error_feedback(top_k(0.01))", 25, "b")]
    assert [line["compressor"] for line in table(others)] == ["`dense()`"]
    assert table(others[1:]) == []


def test_without_a_compiler_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(gpu, "missing", lambda: "GPU programs need JAX's CUDA plugin")
    monkeypatch.setattr(compile_profile.jax.config, "update", lambda *each: None)
    assert main(Options()) == 2
    assert "cannot run: GPU programs need" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_compressor_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no_such"):
        Options(only=("no_such",))
