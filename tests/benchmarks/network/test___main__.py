"""What the command needs, and what it skips."""

import contextlib
import dataclasses

import pytest
from network_rows import made

from benchmarks.common import results
from benchmarks.network import __main__ as network
from benchmarks.network.__main__ import Options, main


def test_without_root_it_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(network, "missing", lambda: ["root"])
    assert main(Options()) == 2
    assert capsys.readouterr().err == "benchmarks.network needs root.\n"


def test_without_hosts_the_table_is_made_from_the_file(monkeypatch):
    written = {}
    methods = [("dense()", "jax"), ("DDP, dense", "torch")]
    rows = [made(*each, step_ms=12.0) | {"machine": "a machine"} for each in methods]
    monkeypatch.setattr(network, "missing", lambda: ["root"])
    monkeypatch.setattr(results, "read_csv", lambda name: rows)
    monkeypatch.setattr(network, "plot", lambda rows, path: written.update(plot=path))
    monkeypatch.setattr(network, "write_readme", lambda _, text: written.update(readme=text))
    monkeypatch.setattr(
        network, "write_between", lambda _, name, text: written.update({name: text})
    )
    assert main(Options(measure=False)) == 0
    assert set(written) == {"plot", "readme", "network", "network profile", "network peers"}
    for text in (written["readme"], written["network"]):
        assert "| `dense()` |" in text and "a machine" in text
    assert "| `dense()` | 2 | 1 Gbit/s | 12.0 |" in written["network profile"]
    assert "| `dense()` | DDP, dense | 2 | 1.00 / 1.00 |" in written["network peers"]


def test_rounds_are_interleaved_and_what_was_measured_is_not_repeated(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(network, "missing", lambda: [])
    monkeypatch.setattr(network, "network", contextlib.nullcontext)
    monkeypatch.setattr(network, "surroundings", lambda: {"commit": "abc"})
    monkeypatch.setattr(network, "_write_pages", lambda rows: None)
    measured = []

    def measure(one, workers, rates, round_, options):
        measured.append((round_, workers, one.method, tuple(rates)))
        return [made(one.method, one.framework, workers, rate, 10.0, round_) for rate in rates]

    monkeypatch.setattr(network, "measure", measure)
    options = Options(workers=(2, 4), rate=("1gbit",), rounds=2, only=("jax dense", "sign()"))
    names = ("dense()", "error_feedback(sign())")
    each = [(i, workers, name) for i in range(2) for workers in (2, 4) for name in names]
    assert main(options) == 0
    assert measured == [(*one, ("1gbit",)) for one in each]
    assert len(results.read_csv(network.RESULTS.name)) == len(each)

    measured.clear()
    assert main(dataclasses.replace(options, rate=("1gbit", "10gbit"))) == 0
    assert measured == [(*one, ("10gbit",)) for one in each]
    measured.clear()
    assert main(dataclasses.replace(options, again=True)) == 0
    assert measured == [(*one, ("1gbit",)) for one in each]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": ("fast",)}, "a rate is a number"),
        ({"workers": (1,)}, "workers must be 2 to 250"),
        ({"repeats": 0}, "repeats and rounds at least 1"),
        ({"rounds": 0}, "repeats and rounds at least 1"),
        ({"only": ("nothing",)}, "no method contains"),
    ],
)
def test_invalid_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Options(**arguments)
