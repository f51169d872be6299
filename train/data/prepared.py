"""Reads a data set that TensorFlow Datasets has prepared as array_record files; needs no TensorFlow itself.

Preparing one does need it, once, and is left to the user: nothing here downloads or writes.
"""

import io
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from train.data.dataset import DataError, Split


def read_prepared(name: str, split: str, data_dir: str | None = None) -> Split:
    """One split of a prepared image classification data set, decoded into memory.

    Args:
      name: as in TensorFlow Datasets, for example "mnist".
      split: as in TensorFlow Datasets, for example "train".
      data_dir: where the prepared data sets are; None for ``$TFDS_DATA_DIR``, and ``~/tensorflow_datasets`` where that
        is not set.

    Raises:
      DataError: the data set is not there, or a file of it is missing or damaged.
    """
    folder = Path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
    try:
        examples = _read_encoded(name, split, folder)
        images = np.stack([np.asarray(Image.open(io.BytesIO(example["image"]))) for example in examples])
    # A missing folder, a missing shard, a truncated shard and a broken description each raise something else, out of
    # four libraries, and some of them a bare Exception.
    except Exception as error:
        raise DataError(_how_to_prepare(name, split, folder, error)) from error
    labels = np.array([example["label"] for example in examples], np.int32)
    # Pillow gives grey images no axis of channels.
    return Split(images.reshape(*images.shape[:3], -1), labels)


def _read_encoded(name: str, split: str, folder: Path) -> list[dict[str, Any]]:
    """Every example of a split, its image still a PNG or JPEG file: Pillow decodes it faster when asked directly."""
    source = tfds.data_source(
        name,
        split=split,
        data_dir=folder,
        download=False,
        decoders={"image": tfds.decode.SkipDecoding()},
        # Without this, a set that is prepared in two formats may be opened in the one that needs TensorFlow.
        builder_kwargs={"file_format": "array_record"},
    )
    # All at once is far faster than one by one, but is no part of the type that TFDS declares.
    return cast(Any, source).__getitems__(range(len(source)))


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
