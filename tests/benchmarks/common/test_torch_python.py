"""Whether another environment can run PyTorch."""

import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.common.torch_python import lacking, runnable


class Method(NamedTuple):
    """What the benchmarks choose from."""

    framework: str
    name: str


METHODS = [Method("jax", "dense()"), Method("torch", "DDP, dense")]
THIS = Path(sys.executable)


def test_without_torch_its_methods_are_left_out_with_a_message(capsys):
    assert runnable(METHODS, None) == METHODS[:1]
    assert "PyTorch's 1 methods are left out: --torch-python" in capsys.readouterr().err


def test_a_python_without_torch_is_reported(tmp_path, monkeypatch, capsys):
    Path(tmp_path, "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert runnable(METHODS, THIS) == METHODS[:1]
    assert f"{THIS} cannot import torch." in capsys.readouterr().err


def test_a_python_that_does_not_exist_is_reported(tmp_path):
    assert "cannot be started: No such file" in lacking(tmp_path / "python")


def test_an_environment_with_torch_runs_all(tmp_path, monkeypatch, capsys):
    Path(tmp_path, "torch.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert runnable(METHODS, THIS, "json") == METHODS
    assert capsys.readouterr().err == ""
    assert lacking(THIS, "no_such_module") == f"{THIS} cannot import torch and no_such_module"


def test_methods_of_jax_need_no_other_environment(capsys):
    assert runnable(METHODS[:1], None) == METHODS[:1]
    assert capsys.readouterr().err == ""
