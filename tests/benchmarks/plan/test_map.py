"""The map of a configuration, from a real plan of its model."""

import jax.numpy as jnp
import optax
import pytest

import jaxcompress
from benchmarks.common.plotting import save
from benchmarks.plan import map
from benchmarks.plan.map import GBIT, picture


@pytest.mark.slow
def test_a_picture_with_every_label_inside_is_written(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(
        map, "save", lambda figure, path: figures.append(figure) or save(figure, path)
    )
    plans = [
        jaxcompress.plan(
            lambda params, batch: jnp.mean((batch @ params) ** 2),
            lambda one: optax.chain(jaxcompress.compress(one), optax.sgd(0.1)),
            jnp.ones((64, 64)),
            jnp.ones((4, 64)),
            jaxcompress.VirtualMesh(workers).abstract,
            links=jaxcompress.ideal_links(1e9),
            candidates=[jaxcompress.top_k(0.01)],
            repeats=1,
        )
        for workers in (2, 4)
    ]
    found = picture(plans, 1e-4, "a model", tmp_path / "plan.png")
    axes = figures[0].axes[0]
    assert len(axes.texts) == 2 * len(GBIT)
    for label in axes.texts:
        (x, y), (left, right), (low, high) = label.get_position(), axes.get_xlim(), axes.get_ylim()
        assert left < x < right and low < y < high
    assert found.read_bytes().startswith(b"\x89PNG")
