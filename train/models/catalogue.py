"""The models by name, each fitted to the images and classes of a data set.

Every model is applied in one way, with or without BatchNorm; `batch_stats` is empty where there is none:

    logits, updated = model.apply({"params": params, "batch_stats": batch_stats}, images, train=True,
                                  mutable=["batch_stats"])
"""

from collections.abc import Callable

import flax.linen as nn

from train.errors import unknown
from train.models.resnet import BasicBlock, Bottleneck, CifarStem, ImageNetStem, ResNet
from train.models.simple_cnn import SimpleCNN

# From this height on, an image is large enough for a stem that makes it four times smaller.
_IMAGENET_STEM_HEIGHT = 128


def build_model(name: str, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """The model called `name`, for images float32 of shape ``(n, *image_shape)``.

    Args:
      name: one of `MODELS`.
      num_classes: number of logits.
      image_shape: height, width and channels. ResNet-18 and ResNet-50 take the ImageNet stem for images at least 128
        pixels high, the CIFAR stem for smaller ones.

    Returns:
      A module without parameters; ``model.init(key, images, train=False)`` makes them.

    Raises:
      ValueError: no model has this name.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name](num_classes, image_shape)


def _stem(image_shape: tuple[int, int, int]) -> Callable[..., nn.Module]:
    """The stem for images of this size."""
    return ImageNetStem if image_shape[0] >= _IMAGENET_STEM_HEIGHT else CifarStem


MODELS: dict[str, Callable[[int, tuple[int, int, int]], nn.Module]] = {
    "simple_cnn": lambda classes, shape: SimpleCNN(classes),
    "resnet8": lambda classes, shape: ResNet(CifarStem, BasicBlock, (1, 1, 1), 16, classes),
    "resnet20": lambda classes, shape: ResNet(CifarStem, BasicBlock, (3, 3, 3), 16, classes),
    "resnet18": lambda classes, shape: ResNet(_stem(shape), BasicBlock, (2, 2, 2, 2), 64, classes),
    "resnet50": lambda classes, shape: ResNet(_stem(shape), Bottleneck, (3, 4, 6, 3), 64, classes),
}
