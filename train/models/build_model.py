"""The models by name, built for the inputs and classes of a data set.

All models are applied in the same way; `batch_stats` is empty without BatchNorm:

    variables = {"params": params, "batch_stats": batch_stats}
    logits, updated = model.apply(variables, inputs, train=True, mutable=["batch_stats"])
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from train.errors import unknown
from train.models.lstm import LSTM
from train.models.resnet import BasicBlock, Bottleneck, CifarStem, ImageNetStem, ResNet
from train.models.simple_cnn import SimpleCNN
from train.models.transformer import Transformer

# (number of classes, shape of an input, dtype of the computation) -> model.
Build = Callable[[int, tuple[int, ...], np.dtype], nn.Module]

# Images at least this high take the stem that makes them four times smaller.
_IMAGENET_STEM_HEIGHT = 128


def build_model(
    name: str,
    num_classes: int,
    input_shape: tuple[int, ...],
    precision: str = "float32",
    transformer_size: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The model called `name`, for inputs of shape ``(n, *input_shape)``.

    Args:
      name: one of `MODELS`.
      num_classes: number of logits for each image or character.
      input_shape: height, width and channels of float32 images, or the number of int32 characters.
        ResNet-18 and ResNet-50 have the ImageNet stem for images at least 128 pixels high, and the
        CIFAR stem otherwise. A transformer has as many positions as characters.
      precision: dtype of the computation, ``"float32"``, ``"bfloat16"`` or ``"float16"``;
        parameters are float32.
      transformer_size: `width`, `layers`, `heads` and `scan_layers` of a `Transformer`; None takes
        its own. Other models ignore it.

    Returns:
      A module; ``model.init(key, inputs, train=False)`` makes its parameters.

    Raises:
      ValueError: no model has this name.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    model = MODELS[name](num_classes, input_shape, jnp.dtype(precision))
    if isinstance(model, Transformer) and transformer_size is not None:
        return model.clone(**transformer_size)
    return model


def _stem(image_shape: tuple[int, ...]) -> Callable[..., nn.Module]:
    """The stem for images of this size."""
    return ImageNetStem if image_shape[0] >= _IMAGENET_STEM_HEIGHT else CifarStem


IMAGE_MODELS: dict[str, Build] = {
    "simple_cnn": lambda classes, shape, dtype: SimpleCNN(classes, dtype),
    "resnet8": lambda classes, shape, dtype: ResNet(
        CifarStem, BasicBlock, (1, 1, 1), 16, classes, dtype
    ),
    "resnet20": lambda classes, shape, dtype: ResNet(
        CifarStem, BasicBlock, (3, 3, 3), 16, classes, dtype
    ),
    "resnet18": lambda classes, shape, dtype: ResNet(
        _stem(shape), BasicBlock, (2, 2, 2, 2), 64, classes, dtype
    ),
    "resnet50": lambda classes, shape, dtype: ResNet(
        _stem(shape), Bottleneck, (3, 4, 6, 3), 64, classes, dtype
    ),
}
TEXT_MODELS: dict[str, Build] = {
    "lstm": lambda classes, shape, dtype: LSTM(classes, dtype),
    "transformer": lambda classes, shape, dtype: Transformer(classes, shape[0], dtype),
}
MODELS = IMAGE_MODELS | TEXT_MODELS
