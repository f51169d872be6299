"""The models of the training program: size, application, precision, and BatchNorm statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.distributed.jaxprs import sub_jaxprs
from train.models.build_model import MODELS, TEXT_MODELS, build_model
from train.task import make_loss

MNIST, DIGITS, CIFAR, IMAGENET = (28, 28, 1), (8, 8, 1), (32, 32, 3), (224, 224, 3)
TEXT = (64,)


def inputs(name, number, input_shape):
    """The shape of a batch for a model."""
    return jax.ShapeDtypeStruct(
        (number, *input_shape), jnp.int32 if name in TEXT_MODELS else jnp.float32
    )


def shapes(name, num_classes, input_shape, precision="float32"):
    """The shapes of a model's variables, without computing them."""
    model = build_model(name, num_classes, input_shape, precision)
    init = jax.eval_shape(
        lambda inputs: model.init(jax.random.key(0), inputs, train=False),
        inputs(name, 1, input_shape),
    )
    return {"params": init["params"], "batch_stats": init.get("batch_stats", {})}


def count(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(
    ("name", "num_classes", "input_shape", "parameters"),
    [
        ("simple_cnn", 10, MNIST, 206_922),
        ("simple_cnn", 10, DIGITS, 22_602),
        ("resnet8", 10, CIFAR, 78_042),
        ("resnet20", 10, CIFAR, 272_474),
        ("resnet18", 10, CIFAR, 11_173_962),  # 1905.13727 trains this one
        ("resnet18", 1000, IMAGENET, 11_689_512),  # 1512.03385
        ("resnet50", 1000, IMAGENET, 25_557_032),  # 1512.03385
        ("lstm", 65, TEXT, 279_873),
        ("transformer", 65, TEXT, 421_697),
    ],
)
def test_number_of_parameters(name, num_classes, input_shape, parameters):
    assert count(shapes(name, num_classes, input_shape)["params"]) == parameters


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_stem_follows_the_size_of_the_images(name):
    small, large = shapes(name, 10, CIFAR), shapes(name, 10, IMAGENET)
    assert small["params"]["CifarStem_0"]["Conv_0"]["kernel"].shape == (3, 3, 3, 64)
    assert large["params"]["ImageNetStem_0"]["Conv_0"]["kernel"].shape == (7, 7, 3, 64)


@pytest.mark.parametrize(
    ("image_shape", "stem_size", "last_size"), [(CIFAR, 32, 4), (IMAGENET, 56, 7)]
)
def test_resnet_halves_the_image_at_the_published_stages(image_shape, stem_size, last_size):
    model = build_model("resnet18", 10, image_shape)
    images = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)

    def sizes(images):
        _, state = model.init_with_output(
            jax.random.key(0), images, train=False, capture_intermediates=True, mutable=True
        )
        return [
            state["intermediates"][name]["__call__"][0] for name in ("BasicBlock_0", "BasicBlock_7")
        ]

    first, last = jax.eval_shape(sizes, images)
    assert first.shape == (1, stem_size, stem_size, 64)
    assert last.shape == (1, last_size, last_size, 512)


@pytest.mark.parametrize("name", MODELS)
def test_all_models_are_applied_in_the_same_way(name):
    input_shape, logits_shape = (TEXT, (4, *TEXT, 7)) if name in TEXT_MODELS else (CIFAR, (4, 7))
    model = build_model(name, 7, input_shape)
    variables = shapes(name, 7, input_shape)

    def apply(variables, inputs):
        return model.apply(variables, inputs, train=True, mutable=["batch_stats"])

    logits, updated = jax.eval_shape(apply, variables, inputs(name, 4, input_shape))
    assert logits.shape == logits_shape
    assert logits.dtype == jnp.float32
    assert jax.tree.structure(updated.get("batch_stats", {})) == jax.tree.structure(
        variables["batch_stats"]
    )


def products(jaxpr):
    """Every matrix product and convolution of a program, also inside loops and functions."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            yield equation
        for inner in sub_jaxprs(equation.params):
            yield from products(inner)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_every_product_has_the_precision_and_all_state_is_float32(name, precision):
    input_shape, label_shape = (TEXT, (4, *TEXT)) if name in TEXT_MODELS else (CIFAR, (4,))
    loss = make_loss(build_model(name, 7, input_shape, precision))
    variables = shapes(name, 7, input_shape, precision)
    batch = {
        "inputs": inputs(name, 4, input_shape),
        "labels": jax.ShapeDtypeStruct(label_shape, jnp.int32),
    }
    program, kept = jax.make_jaxpr(jax.value_and_grad(loss, has_aux=True), return_shape=True)(
        *variables.values(), batch
    )
    found = {
        variable.aval.dtype.name
        for equation in products(program.jaxpr)
        for variable in equation.invars
    }
    assert found == {precision}
    assert {x.dtype.name for x in jax.tree.leaves((variables, kept))} == {"float32"}


def test_simple_cnn_has_no_state():
    assert shapes("simple_cnn", 10, MNIST)["batch_stats"] == {}


def test_batch_norm_uses_batch_statistics_in_training_and_running_averages_in_evaluation():
    model = build_model("resnet8", 10, DIGITS)
    images = jax.random.normal(jax.random.key(1), (16, *DIGITS))
    variables = jax.jit(lambda: model.init(jax.random.key(0), images, train=False))()

    @jax.jit
    def apply(variables):
        in_training, updated = model.apply(variables, images, train=True, mutable=["batch_stats"])
        return in_training, model.apply(variables, images, train=False), updated

    in_training, otherwise, updated = apply(variables)
    assert not np.allclose(in_training, otherwise)

    # The stem's running mean starts at 0 and moves a tenth of the way to the mean of the batch.
    kernel = variables["params"]["CifarStem_0"]["Conv_0"]["kernel"]
    features = jax.lax.conv_general_dilated(
        images, kernel, (1, 1), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    running = updated["batch_stats"]["CifarStem_0"]["BatchNorm_0"]["mean"]
    np.testing.assert_allclose(running, 0.1 * features.mean(axis=(0, 1, 2)), atol=1e-6)


def test_unknown_model_names_the_nearest_and_all():
    with pytest.raises(ValueError, match=r"resnet81.*'resnet8'") as raised:
        build_model("resnet81", 10, CIFAR)
    assert all(name in str(raised.value) for name in MODELS)
