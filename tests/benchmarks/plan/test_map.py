"""The map of a configuration, from a real plan of its model."""

import jax.numpy as jnp
import optax

import jaxcompress
from benchmarks.plan.map import picture


def test_a_picture_is_written(tmp_path):
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
    assert found.read_bytes().startswith(b"\x89PNG")
