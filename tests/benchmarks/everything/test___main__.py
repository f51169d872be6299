"""One command after the other, the summary, and a copy of the checkout for small cases."""

import types

import pytest

from benchmarks.common.pages import REPOSITORY
from benchmarks.everything import __main__ as everything
from benchmarks.everything.__main__ import Options, announcement, main, quick_checkout
from benchmarks.everything.commands import Benchmark, LeftOut


@pytest.fixture
def started(monkeypatch):
    """The commands that were started, with their folders; "broken" fails, "long" is stopped."""
    commands = []

    def run(command, cwd, check):
        commands.append((" ".join(command[1:]), cwd))
        if "benchmarks.long" in command:
            raise KeyboardInterrupt
        return types.SimpleNamespace(returncode=int("benchmarks.broken" in command))

    benchmarks = (
        Benchmark("one", ("--big", "a b"), quick=("--small",), hours=1.5),
        Benchmark("broken", quick=(), hours=2),
        Benchmark("other"),
        Benchmark("long"),
        Benchmark("last"),
    )
    monkeypatch.setattr(everything, "HERE", benchmarks)
    monkeypatch.setattr(everything, "LEFT_OUT", (LeftOut("far", (), "root"),))
    monkeypatch.setattr(everything, "subprocess", types.SimpleNamespace(run=run))
    return commands


def test_a_failure_does_not_stop_the_others(started, capsys):
    assert main(Options(only=("one", "broken", "other"))) == 1
    assert started == [
        ("-m benchmarks.one --big a b", REPOSITORY),
        ("-m benchmarks.broken", REPOSITORY),
        ("-m benchmarks.other", REPOSITORY),
    ]
    first, *_, one, broken, other = capsys.readouterr().out.splitlines()
    assert first == "3 benchmarks: about 3.5 hours on two cores, and 1 of them an unknown time"
    assert one == "| python -m benchmarks.one --big 'a b' | 0 | ok |"
    assert broken.endswith("| failed |")
    assert other.endswith("| ok |")


def test_success_has_exit_code_0(started):
    assert main(Options(only=("one", "other"))) == 0


def test_ctrl_c_ends_with_the_summary(started, capsys):
    assert main(Options()) == 130
    out = capsys.readouterr().out
    assert "| python -m benchmarks.broken | 0 | failed |" in out
    assert "| python -m benchmarks.long |  | left out: not finished |" in out
    assert "| python -m benchmarks.last |  | left out: not finished |" in out
    assert "| python -m benchmarks.far |  | left out: needs root |" in out


def test_small_cases_run_in_a_copy(started, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        everything, "quick_checkout", lambda: everything.contextlib.nullcontext(tmp_path)
    )
    assert main(Options(quick=True)) == 1
    assert started == [("-m benchmarks.one --small", tmp_path), ("-m benchmarks.broken", tmp_path)]
    assert "| python -m benchmarks.other |  | left out: no small case |" in capsys.readouterr().out


def test_names_that_cannot_run_are_refused(started):
    with pytest.raises(ValueError, match="far is left out: it needs root"):
        Options(only=("far",))
    with pytest.raises(ValueError, match="no benchmark is called near; choose from broken, last"):
        Options(only=("near",))


def test_the_announcement_of_small_cases_names_no_hours():
    assert "hours" not in announcement([Benchmark("one", quick=(), hours=2)], quick=True)


def test_the_copy_has_the_files_of_the_checkout_and_is_removed():
    with quick_checkout() as folder:
        for name in ("benchmarks/results/training.csv", "docs/results.md", "train/__main__.py"):
            assert (folder / name).read_bytes() == (REPOSITORY / name).read_bytes()
        assert not (folder / ".git").exists()
        assert not (folder / ".venv").exists()
        (folder / "benchmarks/results/training.csv").write_text("")
    assert not folder.exists()
    assert (REPOSITORY / "benchmarks/results/training.csv").read_text()


def test_without_git_there_is_no_copy(monkeypatch, tmp_path):
    monkeypatch.setattr(everything, "REPOSITORY", tmp_path)
    with (
        pytest.raises(SystemExit, match="--quick copies the files that git lists"),
        quick_checkout(),
    ):
        pass
