"""MNIST: 70,000 grey images of handwritten digits, 28x28 pixels.

Reference: LeCun et al., `Gradient-based learning applied to document recognition
<http://yann.lecun.com/exdb/publis/pdf/lecun-98.pdf>`_, 1998
"""

from train.data.images import Images
from train.data.prepared import read_images


def mnist(data_dir: str | None = None) -> Images:
    """MNIST as prepared by TensorFlow Datasets in `data_dir`."""
    return Images(
        name="mnist",
        train=read_images("mnist", "train", data_dir),
        test=read_images("mnist", "test", data_dir),
        num_classes=10,
        mean=(33.32,),
        std=(78.57,),
    )
