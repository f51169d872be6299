"""Reads a data set that TensorFlow Datasets has prepared as array_record files; needs no TensorFlow itself.

Preparing one does need it, once, and is left to the user: nothing here downloads or writes.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from train.data.dataset import DataError
from train.data.images import Split

Decoded = TypeVar("Decoded")


def read_images(name: str, split: str, data_dir: str | None = None) -> Split:
    """One split of a prepared image classification data set, decoded into memory.

    Args:
      name: as in TensorFlow Datasets, for example "mnist".
      split: as in TensorFlow Datasets, for example "train".
      data_dir: where the prepared data sets are; None for ``$TFDS_DATA_DIR``, and ``~/tensorflow_datasets`` where that
        is not set.

    Raises:
      DataError: the data set is not there, or a file of it is missing or damaged.
    """
    # Each image stays a PNG or JPEG file at first: Pillow decodes it faster when asked directly.
    return _read(name, split, data_dir, _as_images, decoders={"image": tfds.decode.SkipDecoding()})


def read_text(name: str, split: str, data_dir: str | None = None) -> str:
    """One split of a prepared data set of text, its examples end to end; arguments and errors as of `read_images`."""
    return _read(name, split, data_dir, lambda examples: b"".join(each["text"] for each in examples).decode())


def _as_images(examples: list[dict[str, Any]]) -> Split:
    """The examples of a split as two arrays."""
    images = np.stack([np.asarray(Image.open(io.BytesIO(example["image"]))) for example in examples])
    labels = np.array([example["label"] for example in examples], np.int32)
    # Pillow gives grey images no axis of channels.
    return Split(images.reshape(*images.shape[:3], -1), labels)


def _read(
    name: str,
    split: str,
    data_dir: str | None,
    decode: Callable[[list[dict[str, Any]]], Decoded],
    decoders: dict[str, Any] | None = None,
) -> Decoded:
    """Every example of a split, decoded; or the one error for whatever is wrong with it."""
    folder = Path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
    try:
        source = tfds.data_source(
            name,
            split=split,
            data_dir=folder,
            download=False,
            decoders=decoders,
            # Without this, a set that is prepared in two formats may be opened in the one that needs TensorFlow.
            builder_kwargs={"file_format": "array_record"},
        )
        # All at once is far faster than one by one, but is no part of the type that TFDS declares.
        return decode(cast(Any, source).__getitems__(range(len(source))))
    # A missing folder, a missing shard, a truncated shard and a broken description each raise something else, out of
    # four libraries, and some of them a bare Exception.
    except Exception as error:
        raise DataError(_how_to_prepare(name, split, folder, error)) from error


def _how_to_prepare(name: str, split: str, folder: Path, error: Exception) -> str:
    """What was looked for, where, what went wrong, and the commands that put it right."""
    reason = str(error).strip().strip('"').splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"data: the {split!r} split of {name!r}, prepared as array_record, is missing or incomplete in "
        f"{folder / name}: {reason}\n"
        f"Prepare it once (remove {folder / name} first if it is there but damaged):\n"
        f"  pip install -e '.[prepare]'\n"
        f'  python -c "import tensorflow_datasets as tfds; '
        f"tfds.builder('{name}', data_dir='{folder}', file_format='array_record').download_and_prepare()\"\n"
        f"or say where it is, with --data-dir or TFDS_DATA_DIR."
    )
