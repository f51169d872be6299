"""The whole command: its table, its last line and its exit code."""

import pytest

import jaxcompress
from benchmarks import validate
from benchmarks.validate import EXPRESSIONS, Options, main


def test_all_is_well_with_exit_code_0(capsys):
    assert main(Options(workers=8, only=("top_k(0.05)",))) == 0
    out = capsys.readouterr().out
    assert "| error_feedback(top_k(0.05)) | ok | ok | ok | ok" in out
    assert out.splitlines()[-1] == "Compressors that keep what they promise: 1 of 1."


@pytest.mark.parametrize("text", ["nonsense(3)", "top_k(7)"])
def test_what_fails_is_named_with_exit_code_1(text, capsys, monkeypatch):
    monkeypatch.setattr(validate, "EXPRESSIONS", [text])
    assert main(Options(workers=8)) == 1
    captured = capsys.readouterr()
    assert f"error_feedback({text}): law: " in captured.err
    assert captured.out.splitlines()[-1] == "Compressors that keep what they promise: 0 of 1."


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_every_expression_can_be_read(text):
    assert jaxcompress.parse(f"error_feedback({text})")
