"""A process that runs PyTorch's counterpart of a compressor on request.

So torch runs in turns with JAX, on the same device and as many threads.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.common.answering_process import AnsweringProcess, answering_process
from benchmarks.common.pages import REPOSITORY


class TorchPeer(NamedTuple):
    """A program of PyTorch on arrays of given shapes."""

    worker: AnsweringProcess
    version: str

    def milliseconds(self) -> float:
        """One run over all arrays."""
        return float(self.worker.ask("run"))


@contextmanager
def torch_peer(
    python: Path, peer: str, shapes: Sequence[tuple[int, ...]], threads: int, device: str
) -> Iterator[TorchPeer]:
    """Starts the process, and ends it on leaving; `benchmarks.compression.torch_worker` says which
    peers there are.

    Raises:
      RuntimeError: the process ends early, for example without PyTorch.
    """
    command = [str(python), "-W", "ignore", "-m", "benchmarks.compression.torch_worker"]
    request = {"peer": peer, "shapes": list(shapes), "threads": threads, "device": device}
    with answering_process(command, REPOSITORY) as worker:
        yield TorchPeer(worker, worker.ask(json.dumps(request)))
