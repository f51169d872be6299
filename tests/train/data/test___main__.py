"""The commands of the data sets: what they print, and their exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest

from train.data import prepare
from train.data.__main__ import main

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def prepared(monkeypatch):
    """The names that were to be prepared, none of which is."""
    names = []
    monkeypatch.setattr(prepare, "prepare", lambda name, data_dir: names.append(name) or name)
    return names


def test_all_names_are_prepared_in_turn(prepared, capsys):
    assert main(["prepare", "mnist", "digits", "cifar10"]) == 0
    assert prepared == ["mnist", "cifar10"]
    assert "digits needs no preparation" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["prepare"], "name the data sets to prepare: mnist, cifar10, tiny_shakespeare."),
        (["prepare", "mnist", "cifar11"], "unknown data set 'cifar11'. Did you mean 'cifar10'?"),
    ],
)
def test_bad_names_have_exit_code_2_and_nothing_is_prepared(arguments, words, prepared, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {words}")
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not prepared


def test_a_reason_has_exit_code_2_and_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(prepare, "_PACKAGES", ("a_missing_package",))
    assert main(["prepare", "mnist", "--data-dir", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: preparing a data set needs a_missing_package.")
    assert captured.err.count("\n") == 1


def test_ctrl_c_has_exit_code_130(monkeypatch, capsys):
    def stopped(name, data_dir):
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "prepare", stopped)
    assert main(["prepare", "mnist"]) == 130
    assert capsys.readouterr().err == "stopped; the data set is not prepared\n"


def test_list_says_what_is_prepared_and_what_is_not(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    (tmp_path / "cifar10" / "3.0.2").mkdir(parents=True)
    assert main(["list"]) == 0
    captured = capfd.readouterr()
    digits, mnist, cifar10, _ = captured.out.splitlines()
    assert digits.endswith("needs no preparation: it is part of scikit-learn")
    assert f"not prepared in {tmp_path}; `python -m train.data prepare mnist`" in mnist
    assert mnist.endswith("downloads 12 MB")
    assert f"damaged, or not in the format array_record: remove {tmp_path}/cifar10" in cifar10


def test_list_finds_what_is_prepared(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(prepare, "place", lambda name, data_dir: tmp_path)
    monkeypatch.setattr("train.data.__main__.is_readable", lambda name, folder: True)
    assert main(["list"]) == 0
    assert f"mnist             prepared: {tmp_path}\n" in capsys.readouterr().out


def test_no_module_of_the_program_imports_tensorflow(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('TensorFlow was imported')")
    program = "import train.__main__, train.data.__main__; train.data.__main__.main(['list'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env={
            "PYTHONPATH": str(tmp_path),
            "PATH": "",
            "JAX_PLATFORMS": "cpu",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
