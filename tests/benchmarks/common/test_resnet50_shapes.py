"""The shapes are those of the model."""

from math import prod

import jax
import jax.numpy as jnp
import pytest

from benchmarks.common.resnet50_shapes import resnet50_shapes, torch_shape
from train.models.build_model import build_model


def test_the_shapes_are_those_of_the_model_that_is_trained():
    model = build_model("resnet50", 1000, (224, 224, 3))
    images = jax.ShapeDtypeStruct((1, 224, 224, 3), jnp.float32)
    variables = jax.eval_shape(
        lambda key, images: model.init(key, images, train=False), jax.random.key(0), images
    )
    found = sorted(x.shape for x in jax.tree.leaves(variables["params"]))
    assert sorted(resnet50_shapes().values()) == found


def test_there_are_as_many_numbers_as_published():
    assert len(resnet50_shapes()) == 161
    assert sum(map(prod, resnet50_shapes().values())) == 25_557_032


@pytest.mark.parametrize(
    ("flax", "torch"),
    [((7, 5, 3, 64), (64, 3, 7, 5)), ((2048, 1000), (1000, 2048)), ((64,), (64,))],
)
def test_torch_has_the_outputs_first(flax, torch):
    assert torch_shape(flax) == torch
