"""Checks that all processes were started with the same run."""

import json
from collections import Counter
from collections.abc import Mapping

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxcompress.distributed.jax_settings import numeric_settings


def assert_equal_across_processes(fields: Mapping[str, str]) -> None:
    """Compares `fields` between all processes; does nothing if there is only one.

    Processes with different compressors would misread each other's messages: they hang, or compute
    a wrong mean silently. So would processes with other versions of JAX, or other settings of it
    that change numbers, such as ``JAX_ENABLE_X64`` and ``XLA_FLAGS``; these are compared with every
    call. Every process must call this at the same point.

    Args:
      fields: name -> text, such as the notation of the compressor and the shapes of the parameters.

    Raises:
      ValueError: in every process, if their numbers of devices differ, or if a field, a setting or
        a version differs; it names the first such one and its value in each process.
    """
    if jax.process_count() == 1:
        return
    _check_even_devices()
    mine = json.dumps(numeric_settings() | dict(fields), sort_keys=True).encode()
    lengths = np.asarray(multihost_utils.process_allgather(np.int32(len(mine)))).ravel()
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: len(mine)] = np.frombuffer(mine, np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(padded))
    everyone = [
        json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)
    ]
    for name in sorted({name for one in everyone for name in one}):
        values = [one.get(name) for one in everyone]
        if len(set(values)) > 1:
            shown = ", ".join(f"process {place}: {value!r}" for place, value in enumerate(values))
            raise ValueError(
                f"{name} differs between processes, so they would not train one model: {shown}."
            )


def _check_even_devices() -> None:
    """ValueError unless all processes have equally many devices, as `process_allgather` needs."""
    devices = Counter(device.process_index for device in jax.devices())
    if len(set(devices.values())) > 1:
        counts = ", ".join(
            f"process {process}: {number}" for process, number in sorted(devices.items())
        )
        raise ValueError(
            f"every process must bring the same number of devices (workers); got {counts}."
        )
