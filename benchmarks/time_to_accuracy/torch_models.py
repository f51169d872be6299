"""The networks of the tasks in PyTorch, with the parameters of those in Flax.

Layers have the names of Flax, so that parameters are found by their path. Weights have PyTorch's
layouts, and the layers are PyTorch's own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from train.config import Config

LAYER_NORM_EPSILON = 1e-6  # Flax's default
BATCH_NORM_EPSILON = 1e-5


def build(config: Config, classes: int, shape: Sequence[int]) -> nn.Module:
    """The network that the training program builds for `config`."""
    if config.model == "transformer":
        return Transformer(classes, shape[0], config.width, config.layers, config.heads)
    if config.model == "simple_cnn":
        return SimpleCNN(classes, shape)
    return ResNet20(classes)


class Transformer(nn.Module):
    """As `train.models.transformer`."""

    def __init__(self, classes: int, context: int, width: int, layers: int, heads: int):
        super().__init__()
        self.position_embedding = nn.Parameter(torch.empty(context, width))
        self.token_embedding = nn.Embedding(classes, width)
        self.blocks = [f"Block_{index}" for index in range(layers)]
        for name in self.blocks:
            self.add_module(name, Block(width, heads))
        self.LayerNorm_0 = nn.LayerNorm(width, LAYER_NORM_EPSILON)
        self.unembedding = nn.Linear(width, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of the next character at every position."""
        x = self.token_embedding(tokens.long()) + self.position_embedding[: tokens.shape[1]]
        for name in self.blocks:
            x = getattr(self, name)(x)
        return self.unembedding(self.LayerNorm_0(x))


class Attention(nn.Module):
    """As `flax.linen.MultiHeadDotProductAttention`, causal."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The features after causal attention."""
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Causal attention and a two-layer MLP, each beside a shortcut."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.LayerNorm_0 = nn.LayerNorm(width, LAYER_NORM_EPSILON)
        self.MultiHeadDotProductAttention_0 = Attention(width, heads)
        self.LayerNorm_1 = nn.LayerNorm(width, LAYER_NORM_EPSILON)
        self.Dense_0 = nn.Linear(width, 4 * width)
        self.Dense_1 = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The features of the next block."""
        x = x + self.MultiHeadDotProductAttention_0(self.LayerNorm_0(x))
        hidden = functional.gelu(self.Dense_0(self.LayerNorm_1(x)), approximate="tanh")
        return x + self.Dense_1(hidden)


class SimpleCNN(nn.Module):
    """As `train.models.simple_cnn`."""

    def __init__(self, classes: int, shape: Sequence[int]):
        super().__init__()
        height, width, channels = shape
        self.Conv_0 = nn.Conv2d(channels, 16, 3, padding=1)
        self.Conv_1 = nn.Conv2d(16, 32, 3, padding=1)
        self.Dense_0 = nn.Linear(32 * (height // 4) * (width // 4), 128)
        self.Dense_1 = nn.Linear(128, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits of a batch of images."""
        x = images.permute(0, 3, 1, 2)
        for layer in (self.Conv_0, self.Conv_1):
            x = functional.max_pool2d(functional.relu(layer(x)), 2)
        # In Flax's order: features last.
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.Dense_1(functional.relu(self.Dense_0(x)))


class ConvNorm(nn.Module):
    """A convolution without bias, and BatchNorm."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, BATCH_NORM_EPSILON)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized features."""
        return self.norm(self.conv(x))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.layers = nn.ModuleList(
            [ConvNorm(inputs, outputs, 3, stride), ConvNorm(outputs, outputs, 3)]
        )
        if inputs != outputs:
            self.layers.append(ConvNorm(inputs, outputs, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The features of the next block."""
        first, second, *shortcut = self.layers
        y = second(functional.relu(first(x)))
        return functional.relu((shortcut[0](x) if shortcut else x) + y)


class ResNet20(nn.Module):
    """As the resnet20 of `train.models.resnet`."""

    def __init__(self, classes: int):
        super().__init__()
        self.stem = ConvNorm(3, 16, 3)
        blocks = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)]
        self.blocks = nn.ModuleList([BasicBlock(*each) for each in blocks + [(64, 64, 1)] * 2])
        self.Dense_0 = nn.Linear(64, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits of a batch of images."""
        x = functional.relu(self.stem(images.permute(0, 3, 1, 2)))
        for block in self.blocks:
            x = block(x)
        return self.Dense_0(x.mean((2, 3)))


@torch.no_grad()
def load_flax(model: nn.Module, params: Mapping[str, Any]) -> None:
    """Copies the parameters of the Flax network into `model`."""
    if isinstance(model, ResNet20):
        _load_resnet(model, params)
        return
    for name, value in params.items():
        part = getattr(model, name)
        if isinstance(value, Mapping) and not set(value) & {"kernel", "scale", "embedding"}:
            load_flax(part, value)
        else:
            _load_layer(part, value)


def _load_resnet(model: ResNet20, params: Mapping[str, Any]) -> None:
    """By position: Flax numbers the convolutions of a module in the order of their use."""
    _load_conv_norm(model.stem, params["CifarStem_0"], 0)
    for index, block in enumerate(model.blocks):
        for place, layer in enumerate(block.layers):
            _load_conv_norm(layer, params[f"BasicBlock_{index}"], place)
    _load_layer(model.Dense_0, params["Dense_0"])


def _load_conv_norm(layer: ConvNorm, params: Mapping[str, Any], index: int) -> None:
    _load_layer(layer.conv, params[f"Conv_{index}"])
    _load_layer(layer.norm, params[f"BatchNorm_{index}"])


def _load_layer(layer: Any, value: Any) -> None:
    """One layer, or one parameter by itself."""
    if isinstance(layer, nn.Parameter):
        _copy(layer, np.asarray(value))
        return
    arrays = {name: np.asarray(x) for name, x in value.items()}
    if "embedding" in arrays:
        _copy(layer.weight, arrays["embedding"])
    elif "scale" in arrays:
        _copy(layer.weight, arrays["scale"])
    elif isinstance(layer, nn.Conv2d):
        _copy(layer.weight, arrays["kernel"].transpose(3, 2, 0, 1))
    else:
        # Attention has an axis of heads, among the outputs or among the inputs.
        _copy(layer.weight, arrays["kernel"].reshape(layer.in_features, layer.out_features).T)
    if "bias" in arrays:
        _copy(layer.bias, arrays["bias"].reshape(layer.bias.shape))


def _copy(parameter: torch.Tensor, values: np.ndarray) -> None:
    if parameter.shape != values.shape:
        raise ValueError(f"the parameter has shape {tuple(parameter.shape)}, Flax's {values.shape}")
    parameter.copy_(torch.from_numpy(np.array(values)))
