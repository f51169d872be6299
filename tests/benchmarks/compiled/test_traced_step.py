"""The traced step has the shapes and the traffic of a real one."""

import jax
import jax.numpy as jnp
import optax

import jaxcompress
from benchmarks.compiled.traced_step import gradient_bytes, rows_of_all, trace_step

OPTIMIZER = optax.chain(
    jaxcompress.compress(jaxcompress.error_feedback(jaxcompress.power_sgd(1))),
    optax.sgd(0.1, momentum=0.9),
)


def test_its_shapes_are_those_that_init_state_places():
    params = {"kernel": jnp.zeros((64, 32)), "bias": jnp.zeros(32)}
    mesh = jaxcompress.data_mesh(4)
    placed = jaxcompress.init_state(OPTIMIZER, jaxcompress.replicate(params, mesh), mesh)
    shapes = rows_of_all(jax.eval_shape(OPTIMIZER.init, params), 4)
    assert jax.tree.structure(shapes) == jax.tree.structure(placed)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, placed)


def test_resnet50_has_25557032_gradients():
    assert gradient_bytes() == 4 * 25_557_032


def test_the_traced_step_averages_all_of_them():
    dense = optax.chain(jaxcompress.compress(jaxcompress.dense()), optax.sgd(0.1))
    traced = trace_step(dense, jaxcompress.data_mesh(2), images_per_worker=1)
    # Besides the gradients, the running statistics, the loss and the accuracy.
    assert (
        gradient_bytes()
        < jaxcompress.traffic_of_jaxpr(traced.jaxpr).payload_bytes
        < 1.01 * gradient_bytes()
    )
