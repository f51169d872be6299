"""The whole command: its table, its last line and its exit code."""

import pytest

import jaxcompress
from benchmarks.common.expressions import SCHEMES
from benchmarks.validate import __main__ as validate
from benchmarks.validate.__main__ import CHECKS, EXPRESSIONS, Options, claimed, main, with_memory


def test_success_has_exit_code_0(capsys):
    assert main(Options(workers=8, only=("column_top_k",))) == 0
    out = capsys.readouterr().out
    assert "| error_feedback(column_top_k(0.05)) | ok | ok | ok | ok" in out
    assert out.splitlines()[-1] == "Compressors that keep their promises: 1 of 1."


@pytest.mark.parametrize("text", ["nonsense(3)", "top_k(7)"])
def test_failures_are_listed_with_exit_code_1(text, capsys, monkeypatch):
    monkeypatch.setattr(validate, "EXPRESSIONS", [text])
    assert main(Options(workers=8)) == 1
    captured = capsys.readouterr()
    assert f"{text}: law: " in captured.err
    assert captured.out.splitlines()[-1] == "Compressors that keep their promises: 0 of 1."


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
        (
            "control_variate(qsgd(4), 0.25)",
            "control_variate(qsgd(4), 0.25)",
            {"law", "replicas", "bits"},
        ),
        ("sign_majority()", "sign_majority()", {"law", "replicas", "bits"}),
        (
            "momentum_correction(top_k(0.1))",
            "momentum_correction(top_k(0.1))",
            {"replicas", "bits"},
        ),
    ],
)
def test_claims_are_checked_with_a_memory_if_possible(text, shown, checks):
    compressor = with_memory(jaxcompress.parse(text))
    assert repr(compressor) == shown
    assert claimed(compressor) == checks


def test_a_check_that_is_not_claimed_is_no_failure(capsys):
    assert main(Options(workers=8, only=("sign_majority",))) == 0
    assert "| sign_majority() | ok | not claimed | ok | ok" in capsys.readouterr().out
