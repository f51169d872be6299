"""The worker's answers, in this process."""

import io
import json
import sys

import pytest

from benchmarks.regression import local_path_worker


def answers(monkeypatch, capsys, *lines: str) -> list[str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    local_path_worker.main()
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("text", ["nonsense(1)", "top_k(2.0)"])
def test_what_the_library_refuses_is_said(text, monkeypatch, capsys):
    (answer,) = answers(monkeypatch, capsys, json.dumps({"text": text, "data": "1M"}))
    assert text.split("(")[0] in answer or "density" in answer
    assert json.loads(answer)["refused"]


def test_steps_are_timed(monkeypatch, capsys):
    request = json.dumps({"text": "error_feedback(sign())", "data": "1M"})
    first, *times = answers(monkeypatch, capsys, request, "run", "run")
    assert json.loads(first)["temp_copies"] >= 0
    assert all(float(time) > 0 for time in times) and len(times) == 2
