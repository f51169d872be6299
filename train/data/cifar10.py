"""CIFAR-10: 60,000 coloured images of animals and vehicles, 32x32 pixels, cropped and mirrored in training.

Reference: Krizhevsky, `Learning Multiple Layers of Features from Tiny Images
<https://www.cs.toronto.edu/~kriz/learning-features-2009-TR.pdf>`_, 2009
"""

from train.data.augmentation import crop_and_flip
from train.data.images import Images
from train.data.prepared import read_images


def cifar10(data_dir: str | None = None) -> Images:
    """CIFAR-10 as prepared by TensorFlow Datasets in `data_dir`."""
    return Images(
        name="cifar10",
        train=read_images("cifar10", "train", data_dir),
        test=read_images("cifar10", "test", data_dir),
        num_classes=10,
        mean=(125.31, 122.95, 113.87),
        std=(62.99, 62.09, 66.70),
        augment=crop_and_flip,
    )
