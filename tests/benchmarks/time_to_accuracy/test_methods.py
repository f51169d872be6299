"""Every method of every task is a compressor, and embeddings travel dense."""

import jax.numpy as jnp
import pytest

import jaxcompress
from benchmarks.time_to_accuracy.methods import DENSE, METHODS, chosen, expression, fits
from benchmarks.time_to_accuracy.tasks import TASKS, config_of

OWN = [method for method in METHODS if method.framework == "jax"]


@pytest.mark.parametrize("method", OWN, ids=lambda method: method.label)
@pytest.mark.parametrize("task", TASKS)
def test_every_method_of_jax_is_a_compressor(method, task):
    compressor = jaxcompress.parse(expression(method, TASKS[task]))
    assert compressor.has_memory == (method.name != DENSE["jax"])


@pytest.mark.parametrize(
    "method", [each for each in OWN if each.name != DENSE["jax"]], ids=lambda method: method.label
)
def test_embeddings_are_sent_dense(method):
    params = {"token_embedding": jnp.zeros((65, 128)), "kernel": jnp.zeros((128, 128))}
    compressor = jaxcompress.parse(expression(method, TASKS["transformer 0.4M"]))
    bits = compressor.message_bits(params)
    assert bits["token_embedding"] == 32 * 65 * 128
    assert bits["kernel"] < 32 * 128 * 128 / 1.9


@pytest.mark.parametrize("task", TASKS)
def test_momentum_before_the_average_is_that_of_the_config(task):
    (method,) = [each for each in OWN if each.optimizer == "dgc"]
    assert config_of(TASKS[task]).nesterov
    assert config_of(TASKS[task]).momentum == 0.9  # the default of momentum_correction
    text = expression(method, TASKS[task])
    assert text.startswith("momentum_correction(")
    assert text.endswith(", nesterov=True)")


def test_filters_see_framework_and_name():
    assert {method.framework for method in chosen(["torch"])} == {"torch"}
    assert [method.name for method in chosen(["power_sgd(4))"])] == ["error_feedback(power_sgd(4))"]
    assert chosen(["nothing of this name"]) == []


@pytest.mark.parametrize("method", [each for each in METHODS if each.framework == "torch"])
def test_methods_of_pytorch_have_no_expression(method):
    assert expression(method, TASKS["transformer 4M"]) == ""


def test_a_task_without_embeddings_needs_no_method_that_keeps_them_dense():
    left_out = {
        name: [each for each in METHODS if not fits(each, task)] for name, task in TASKS.items()
    }
    assert left_out["transformer 4M"] == []
    (method,) = left_out["CNN on MNIST"]
    assert method.name == "DDP, PowerSGD hook, embeddings dense, rank 4"
