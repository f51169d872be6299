"""The command: what it needs, and what it leaves out."""

import sys
from pathlib import Path

import pytest

from benchmarks import network
from benchmarks.host_processes import Measured
from benchmarks.network import Options, main, runnable
from benchmarks.network_methods import Method, chosen
from benchmarks.network_table import row


def test_without_root_it_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(network, "missing", lambda: ["root"])
    assert main(Options()) == 2
    assert capsys.readouterr().err == "benchmarks.network needs root.\n"


def test_without_hosts_the_table_is_made_from_the_file(monkeypatch, capsys):
    found = dict.fromkeys(("step", "bare"), Measured([12.0], 1_010_000, 100))
    about = {"version": "jax 1", "python": "3", "asked_bytes": 1_000_000}
    rows = [row(Method("jax", "dense()"), 2, "1gbit", found, about) | {"machine": "a machine"}]
    written = {}
    monkeypatch.setattr(network, "missing", lambda: ["root"])
    monkeypatch.setattr(network, "read_csv", lambda name: rows)
    monkeypatch.setattr(network, "plot", lambda rows, path: written.update(plot=path))
    monkeypatch.setattr(network, "write_readme", lambda script, text: written.update({script: text}))
    assert main(Options(workers=())) == 0
    assert "| `dense()` |" in written["network.py"] and "a machine" in written["network.py"] and written["plot"]
    assert "dense()" in capsys.readouterr().out


def test_without_torch_its_rows_are_left_out_and_that_is_said(capsys):
    assert runnable(Options(only=("jax", "DDP, dense"))) == chosen(["jax"])
    assert "--torch-python" in capsys.readouterr().err


def test_a_python_without_torch_is_told(tmp_path, monkeypatch, capsys):
    Path(tmp_path, "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert runnable(Options(torch_python=Path(sys.executable))) == chosen(["jax"])
    assert "cannot import it" in capsys.readouterr().err


def test_an_environment_with_torch_runs_all(tmp_path, monkeypatch, capsys):
    Path(tmp_path, "torch.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert runnable(Options(torch_python=Path(sys.executable))) == chosen([])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rate": ("fast",)}, "a rate is a number"),
        ({"workers": (1,)}, "workers are 2 to 250"),
        ({"repeats": 0}, "repeats at least 1"),
        ({"only": ("nothing",)}, "no method contains"),
    ],
)
def test_what_means_nothing_is_told(arguments, words):
    with pytest.raises(ValueError, match=words):
        Options(**arguments)
