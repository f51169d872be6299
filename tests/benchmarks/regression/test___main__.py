"""This checkout compared with its own commit, on one compressor."""

import csv
import subprocess

import pytest

from benchmarks.common import results
from benchmarks.common.environment import REPOSITORY
from benchmarks.regression import __main__ as regression
from benchmarks.regression.__main__ import Options, around, commit_of, main
from benchmarks.regression.table import FILE

HAS_COMMITS = not subprocess.run(
    ["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, check=False
).returncode
pytestmark = pytest.mark.skipif(not HAS_COMMITS, reason="not a git repository with a commit")


@pytest.mark.slow
def test_a_row_has_both_times_their_ratio_and_the_copies(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    main(Options(since="HEAD", data=("1M",), only=("block_max(128)",), rounds=1))
    (row,) = csv.DictReader((tmp_path / "regression.csv").read_text().splitlines())
    before, after = float(row["before_median_ms"]), float(row["after_median_ms"])
    assert float(row["ratio"]) == pytest.approx(after / before, abs=0.05)
    assert row["before_copies"] == row["after_copies"] != "0.00"
    assert row["since"] == commit_of("HEAD") != "HEAD"
    assert "| 1M | `block_max(128)` |" in capsys.readouterr().out


def test_an_unknown_commit_is_named():
    with pytest.raises(SystemExit, match="no-such-commit"):
        commit_of("no-such-commit")


def test_no_memory_around_what_does_not_contract():
    assert around("top_k(0.01)") == "error_feedback(top_k(0.01))"
    assert around("qsgd(2)") == "qsgd(2)"


def test_a_refused_compressor_loses_its_earlier_row(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(regression, "compared", lambda *_: None)
    about = {"data": "1M", "since": "abc", "commit": "def"}
    FILE.save([about | {"compressor": text} for text in ("block_max(128)", "sign()")])
    main(Options(since="HEAD", data=("1M",), only=("block_max(128)",)))
    assert [row["compressor"] for row in FILE.read()] == ["sign()"]
    assert "|" not in capsys.readouterr().out
