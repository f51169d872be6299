"""The whole command: its table, its last line and its exit code."""

import pytest

import jaxcompress
from benchmarks import validate
from benchmarks.schemes import SCHEMES
from benchmarks.validate import CHECKS, EXPRESSIONS, Options, claimed, main, with_memory


def test_all_is_well_with_exit_code_0(capsys):
    assert main(Options(workers=8, only=("column_top_k",))) == 0
    out = capsys.readouterr().out
    assert "| error_feedback(column_top_k(0.05)) | ok | ok | ok | ok" in out
    assert out.splitlines()[-1] == "Compressors that keep what they promise: 1 of 1."


@pytest.mark.parametrize("text", ["nonsense(3)", "top_k(7)"])
def test_what_fails_is_named_with_exit_code_1(text, capsys, monkeypatch):
    monkeypatch.setattr(validate, "EXPRESSIONS", [text])
    assert main(Options(workers=8)) == 1
    captured = capsys.readouterr()
    assert f"{text}: law: " in captured.err
    assert captured.out.splitlines()[-1] == "Compressors that keep what they promise: 0 of 1."


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_every_expression_can_be_read(text):
    assert jaxcompress.parse(text)


def test_every_scheme_is_checked():
    assert set(SCHEMES.values()) <= set(EXPRESSIONS)


@pytest.mark.parametrize(
    ("text", "shown", "checks"),
    [
        ("qsgd(4)", "error_feedback(qsgd(4))", set(CHECKS)),
        ("error_feedback(sign())", "error_feedback(sign())", set(CHECKS)),
        ("control_variate(qsgd(4), 0.25)", "control_variate(qsgd(4), 0.25)", {"law", "replicas", "bits"}),
        ("sign_majority()", "sign_majority()", {"replicas", "bits"}),
    ],
)
def test_each_is_held_to_what_it_claims_with_a_memory_where_it_can_have_one(text, shown, checks):
    compressor = with_memory(jaxcompress.parse(text))
    assert compressor.expression == shown
    assert claimed(compressor) == checks


def test_what_is_not_claimed_is_no_failure(capsys):
    assert main(Options(workers=8, only=("sign_majority",))) == 0
    assert "| sign_majority() | not claimed | not claimed | ok | ok" in capsys.readouterr().out
