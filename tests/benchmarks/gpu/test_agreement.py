"""What agrees with the CPU, and what does not."""

import jax
import numpy as np
import pytest

import jaxcompress
from benchmarks.common import results
from benchmarks.gpu import agreement
from benchmarks.gpu.agreement import COMPRESSORS, FILE, compare, main


def test_a_cpu_agrees_with_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(agreement, "COMPRESSORS", ["sign()", "error_feedback(top_k(0.01))"])
    monkeypatch.setattr(agreement, "environment", lambda: {"device": "cpu", "commit": "abc"})
    assert main() == 0
    assert main() == 0
    assert [row["agrees"] for row in FILE.read()] == ["True", "True"]
    assert [bool(row["law_error"]) for row in FILE.read()] == [True, False]
    # The second call measures nothing.
    assert capsys.readouterr().out.splitlines().count("sign()") == 1


@pytest.mark.parametrize(
    ("spoil", "agrees"),
    [
        (lambda found: found, True),
        (lambda found: found._replace(bits=found.bits + 1), False),
        (lambda found: found._replace(mean={k: 1.1 * x for k, x in found.mean.items()}), False),
        # Little enough for rounding, and too much for the law.
        (lambda found: found._replace(mean={k: 1.001 * x for k, x in found.mean.items()}), False),
    ],
)
def test_another_result_is_noticed(spoil, agrees, monkeypatch):
    own = agreement.reduced
    calls = []

    def reduced(*arguments):
        calls.append(arguments)
        found = own(*arguments)
        return spoil(found) if len(calls) == 1 else found

    monkeypatch.setattr(agreement, "reduced", reduced)
    assert compare("cast('bfloat16')")["agrees"] == agrees


def test_every_compressor_is_compared():
    assert len(COMPRESSORS) == len(set(COMPRESSORS)) > 40
    assert all(jaxcompress.parse(text) for text in COMPRESSORS)


def test_the_second_result_depends_on_the_memory():
    updates = {"matrix": np.random.default_rng(0).normal(size=(8, 64, 64)).astype(np.float32)}
    remembers, forgets = (
        agreement.reduced(text, updates, jax.devices("cpu")[0]).mean["matrix"]
        for text in ("error_feedback(top_k(0.05))", "top_k(0.05)")
    )
    assert not np.allclose(remembers, forgets)
