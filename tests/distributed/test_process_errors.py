"""How a process ends: what it prints before."""

import sys

import pytest

from jaxcompress.distributed.process_errors import print_reason


def test_the_reason_is_printed_whatever_the_advice_does(capsys):
    def fails():
        raise RuntimeError("no folder")

    print_reason("process 1 has failed.", lambda: "Try again.")
    print_reason("process 1 has failed", fails)
    assert capsys.readouterr().err.splitlines() == [
        "error: process 1 has failed. Try again.",
        "error: process 1 has failed.",
    ]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_stream_stops_nothing(stream, monkeypatch, tmp_path):
    with (tmp_path / "closed").open("w") as file:
        pass
    monkeypatch.setattr(sys, stream, file)
    print_reason("process 1 has failed", str)
