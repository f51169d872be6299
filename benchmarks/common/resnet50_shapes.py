"""The shapes of ResNet-50's 161 gradients: 25,557,032 float32 numbers.

This is plain Python, so a process without JAX can import it.
"""

STAGES = (3, 4, 6, 3)  # bottleneck blocks, each stage doubles the channels
CLASSES = 1000


def resnet50_shapes() -> dict[str, tuple[int, ...]]:
    """Name -> shape, as Flax stores them.

    Kernels are (height, width, in, out), and the last layer's is (in, out).
    """
    shapes = _convolution("stem", 7, 3, 64)
    channels = 64
    for stage, blocks in enumerate(STAGES):
        inner = 64 * 2**stage
        for block in range(blocks):
            name = f"stage{stage}/block{block}"
            shapes |= _convolution(f"{name}/reduce", 1, channels, inner)
            shapes |= _convolution(f"{name}/spatial", 3, inner, inner)
            shapes |= _convolution(f"{name}/expand", 1, inner, 4 * inner)
            if block == 0:
                shapes |= _convolution(f"{name}/shortcut", 1, channels, 4 * inner)
            channels = 4 * inner
    return shapes | {"head/kernel": (channels, CLASSES), "head/bias": (CLASSES,)}


def torch_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same array in PyTorch's order: outputs, inputs, height, width."""
    return (*shape[:-3:-1], *shape[:-2])


def _convolution(name: str, size: int, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """A kernel, and the scale and bias of the normalisation after it."""
    return {
        f"{name}/kernel": (size, size, inputs, outputs),
        f"{name}/scale": (outputs,),
        f"{name}/bias": (outputs,),
    }
