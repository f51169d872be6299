"""Reads data sets that TensorFlow Datasets has prepared as array_record files.

Reading needs no TensorFlow, and writes nothing. Preparing, in `train.data.prepare`, needs both.
"""

import io
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from train.data.dataset import DataError
from train.data.images import Split
from train.errors import user_path

Decoded = TypeVar("Decoded")


def data_folder(data_dir: str | None = None) -> Path:
    """The folder of the prepared data sets: `data_dir`, ``$TFDS_DATA_DIR``, or that of TFDS."""
    return user_path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def is_readable(name: str, folder: Path) -> bool:
    """Whether the files of a data set are in `folder`, as array_record; it reads no examples."""
    try:
        return len(_open(name, "train", folder)) > 0
    except Exception:  # of many types, as in `_read`
        return False


def read_images(name: str, split: str, data_dir: str | None = None) -> Split:
    """One split of a prepared image classification data set, decoded into memory.

    Args:
      name: as in TensorFlow Datasets, for example "mnist".
      split: as in TensorFlow Datasets, for example "train".
      data_dir: folder of the prepared data sets; None means ``$TFDS_DATA_DIR``, or
        ``~/tensorflow_datasets`` if that is not set.

    Raises:
      DataError: the data set, or a file of it, is missing or damaged.
    """
    # Pillow decodes PNG and JPEG files faster when called directly.
    return _read(name, split, data_dir, _as_images, decoders={"image": tfds.decode.SkipDecoding()})


def read_text(name: str, split: str, data_dir: str | None = None) -> str:
    """One split of a prepared data set of text, its examples joined.

    Arguments and errors are those of `read_images`.
    """
    return _read(
        name, split, data_dir, lambda examples: b"".join(each["text"] for each in examples).decode()
    )


def _as_images(examples: list[dict[str, Any]]) -> Split:
    """The examples of a split as two arrays."""
    images = np.stack(
        [np.asarray(Image.open(io.BytesIO(example["image"]))) for example in examples]
    )
    labels = np.array([example["label"] for example in examples], np.int32)
    # Pillow gives grey images no channel axis.
    return Split(images.reshape(*images.shape[:3], -1), labels)


def _read(
    name: str,
    split: str,
    data_dir: str | None,
    decode: Callable[[list[dict[str, Any]]], Decoded],
    decoders: dict[str, Any] | None = None,
) -> Decoded:
    """All examples of a split, decoded; one error type for whatever is wrong with them."""
    folder = data_folder(data_dir)
    try:
        source = _open(name, split, folder, decoders)
        # Reading all at once is far faster.
        return decode(source.__getitems__(range(len(source))))
    # A missing folder, a missing shard, a truncated shard and a broken description raise different
    # errors from four libraries, some of them a bare Exception.
    except Exception as error:
        raise DataError(_how_to_prepare(name, split, folder, error)) from error


def _open(name: str, split: str, folder: Path, decoders: dict[str, Any] | None = None) -> Any:
    """The examples of a split, which are read when they are indexed."""
    return tfds.data_source(
        name,
        split=split,
        data_dir=folder,
        download=False,
        decoders=decoders,
        # A set that is prepared in two formats might otherwise be opened with TensorFlow.
        builder_kwargs={"file_format": "array_record"},
    )


def _how_to_prepare(name: str, split: str, folder: Path, error: Exception) -> str:
    """An error message: what is missing, where, why, and the commands that prepare it."""
    reason = (
        str(error).strip().strip('"').splitlines()[0]
        if str(error).strip()
        else type(error).__name__
    )
    return (
        f"data: the {split!r} split of {name!r}, prepared as array_record, is missing or"
        " incomplete in "
        f"{folder / name}: {reason}\n"
        f"Prepare it once (remove {folder / name} first if it is there but damaged):\n"
        f"  pip install -e '.[prepare]'\n"
        f"  python -m train.data prepare {name} --data-dir {shlex.quote(str(folder))}\n"
        f"or give its folder, with --data-dir or TFDS_DATA_DIR."
    )
