"""Downloads data sets and prepares them for `train.data.tfds_reader`, once.

TensorFlow Datasets does both, with progress bars. It needs TensorFlow, a network and room on the
disk. These are checked first, because TFDS tries for minutes to reach a server that is not there.
"""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import tensorflow_datasets as tfds

from train.data.dataset import DataError
from train.data.registry import load_dataset
from train.data.tfds_reader import data_folder
from train.errors import InputError, file_access


class Size(NamedTuple):
    """What a data set takes, in megabytes."""

    download: int
    disk: int  # for the download, what is unpacked from it, and the prepared files


# The data sets that are prepared.
SIZES = {"mnist": Size(12, 100), "cifar10": Size(170, 600), "tiny_shakespeare": Size(1, 5)}

# Without importlib_resources, which it does not declare, TFDS 4.9.10 does not prepare.
_PACKAGES = ("tensorflow", "importlib_resources")
# An answer that takes longer counts as none.
_SECONDS_TO_ANSWER = 10


def prepare(name: str, data_dir: str | None = None) -> str:
    """Prepares the data set called `name`, unless it is prepared, and reads it.

    Args:
      name: one of `SIZES`.
      data_dir: folder of the prepared data sets, as in `load_dataset`.

    Returns:
      One line for the user: where the data set is.

    Raises:
      InputError: it cannot be prepared here; the message says why and what to do.
    """
    folder = data_folder(data_dir)
    builder = tfds.builder(name, data_dir=folder)
    path = Path(builder.data_path)
    done = "is already" if path.exists() else "is now"
    if not path.exists():
        _check_packages()
        _check_network(builder, folder)
        _check_disk(name, folder)
        _download(builder)
    load_dataset(name, str(folder))
    return f"{name} {done} prepared: {path}"


def place(name: str, data_dir: str | None = None) -> Path:
    """The folder that a data set is prepared in, whether it exists or not."""
    return Path(tfds.builder(name, data_dir=data_folder(data_dir)).data_path)


def _check_packages() -> None:
    """Raises InputError without the packages that reading does not need."""
    if lacks := [one for one in _PACKAGES if importlib.util.find_spec(one) is None]:
        raise InputError(
            f"preparing a data set needs {' and '.join(lacks)}. Install what is missing with:"
            " pip install -e '.[prepare]'"
        )


def _check_network(builder: tfds.core.DatasetBuilder, folder: Path) -> None:
    """Raises InputError unless the server of the data set answers."""
    import requests  # of TFDS; slow to import

    url = next(iter(builder.url_infos or {}))
    try:
        with requests.get(url, stream=True, timeout=_SECONDS_TO_ANSWER) as answer:
            answer.raise_for_status()
    except requests.RequestException as error:
        status = "" if error.response is None else f", HTTP status {error.response.status_code}"
        raise InputError(
            f"{builder.name} cannot be downloaded: no answer from {urlsplit(url).netloc}"
            f" ({type(error).__name__}{status}). Check the network and HTTPS_PROXY, or copy"
            f" {folder / builder.name} from a machine on which it is prepared."
        ) from error


def _check_disk(name: str, folder: Path) -> None:
    """Raises InputError unless the data set can be written and has room."""
    with file_access(f"the data folder {str(folder)!r}"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free / 1e6
    if free < (needed := SIZES[name].disk):
        raise InputError(
            f"{name} needs {needed} MB in {folder}, which has {free:.0f} MB. Choose"
            " another folder with --data-dir."
        )


def _download(builder: tfds.core.DatasetBuilder) -> None:
    """Downloads and prepares; TFDS removes what an error leaves unfinished."""
    # No lines about the processor, between the progress bars.
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    try:
        builder.download_and_prepare(file_format="array_record")
    # A lost connection, a full disk and a changed file raise errors of many types.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(
            f"{builder.name} was not prepared: {reason}. Repeat the command."
        ) from error
