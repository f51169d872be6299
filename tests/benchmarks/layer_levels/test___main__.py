"""A level for each array beside other selections: a small task, and messages of equal size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcompress
from benchmarks.common.training_tasks import Task
from benchmarks.layer_levels import __main__ as layer_levels


@pytest.mark.parametrize("constructor", [jaxcompress.top_k, jaxcompress.global_top_k])
def test_messages_are_as_large_as_asked(constructor):
    params = {"a": jnp.zeros(5000), "b": jnp.zeros((50, 60))}
    text = layer_levels.as_large(constructor, params, 12_000)
    sizes = jaxcompress.parse(text).message_bits(params)
    assert sum(jax.tree.leaves(sizes)) == pytest.approx(12_000, rel=0.05)


@pytest.mark.slow
def test_the_schemes_are_compared_on_other_batches(monkeypatch):
    monkeypatch.setattr(layer_levels, "STEPS", 2)
    monkeypatch.setattr(layer_levels, "BATCHES", 1)
    monkeypatch.setattr(layer_levels, "BUDGETS", (0.05,))
    random = np.random.default_rng(0)
    batches = iter(random.standard_normal((9, 8, 40)).astype(np.float32))
    params = {name: jnp.ones((40, 40)) for name in ("a", "b")}

    def loss(params, extra, batch):
        found = jnp.mean((batch @ params["a"]) ** 2) + 1e-3 * jnp.mean((batch @ params["b"]) ** 2)
        return found, (extra, {})

    rows = layer_levels.measure(Task(params, {}, loss, batches, 0.01))
    assert [row["scheme"] for row in rows] == list(layer_levels.SCHEMES)
    errors = {row["scheme"]: float(row["relative_error"]) for row in rows}
    assert errors["global_top_k"] <= errors["top_k"]
    (line,) = layer_levels.table([{"task": "small"} | row for row in rows])
    assert set(line) == {
        "task",
        "budget",
        "bits an entry",
        "by `sensitivity`",
        "one level",
        "`global_top_k`",
    }


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match=r"task must be one of .*; got 'none'"):
        layer_levels.Options(task=("none",))
