"""The data sets: which of them are prepared here, and the command that prepares one.

    python -m train.data list
    python -m train.data prepare mnist cifar10

Exit codes: 0; after `prepare`, only if all of them can be read now. 2 with one line that says why
not; 130 after Ctrl-C.
"""

import os
import signal
import sys
from collections.abc import Sequence

import tyro

from train.data import prepare
from train.data.registry import DATASETS
from train.data.tfds_reader import data_folder, is_readable
from train.errors import EXIT_CODE_BAD_INPUT, InputError, unknown


def prepare_all(names: tyro.conf.Positional[tuple[str, ...]], data_dir: str | None = None) -> None:
    """Downloads data sets and prepares them, with progress bars. It needs the extra "prepare".

    What is prepared already stays as it is. The downloaded files stay in the folder "downloads" of
    the data folder, and can be removed.

    Args:
        names: the data sets: mnist, cifar10 or tiny_shakespeare.
        data_dir: folder of the prepared data sets; None means the environment variable
            TFDS_DATA_DIR, or ~/tensorflow_datasets.
    """
    if not names:
        raise InputError(f"name the data sets to prepare: {', '.join(prepare.SIZES)}.")
    for name in names:
        if name not in DATASETS:
            raise unknown("data set", name, DATASETS)
    for name in names:
        if name in prepare.SIZES:
            print(prepare.prepare(name, data_dir), flush=True)
        else:
            print(f"{name} needs no preparation: it is part of scikit-learn")


def list_all(data_dir: str | None = None) -> None:
    """Prints all data sets, and which of them are prepared, and where.

    Args:
        data_dir: folder of the prepared data sets; None means the environment variable
            TFDS_DATA_DIR, or ~/tensorflow_datasets.
    """
    width = max(map(len, DATASETS))
    for name in DATASETS:
        print(f"{name:{width}}  {_state(name, data_dir)}")


def _state(name: str, data_dir: str | None) -> str:
    """Where a data set is, or how it is prepared."""
    if name not in prepare.SIZES:
        return "needs no preparation: it is part of scikit-learn"
    path = prepare.place(name, data_dir)
    if not path.exists():
        return (
            f"not prepared in {data_folder(data_dir)}; `python -m train.data prepare {name}`"
            f" downloads {prepare.SIZES[name].download} MB"
        )
    if not is_readable(name, data_folder(data_dir)):
        return f"damaged, or not in the format array_record: remove {path} and prepare it again"
    return f"prepared: {path}"


def main(arguments: Sequence[str]) -> int:
    """Runs a command line and returns the exit code."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"prepare": prepare_all, "list": list_all},
            args=arguments,
            prog="python -m train.data",
            description=__doc__,
        )
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODE_BAD_INPUT
    except KeyboardInterrupt:
        print("stopped; the data set is not prepared", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # After Ctrl-C, Python would wait for the threads that download.
    os._exit(code)
