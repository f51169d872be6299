"""A process that runs `torch.topk` on request.

So torch runs in turns with JAX, on as many threads.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.common.answering_process import AnsweringProcess, answering_process
from benchmarks.common.environment import REPOSITORY


class TorchSelection(NamedTuple):
    """`torch.topk` on arrays of given sizes."""

    worker: AnsweringProcess
    version: str

    def milliseconds(self) -> float:
        """One selection in every array."""
        return float(self.worker.ask("run"))


@contextmanager
def torch_selection(
    python: Path, sizes: Sequence[int], density: float, threads: int
) -> Iterator[TorchSelection]:
    """Starts the process, and ends it on leaving.

    Raises:
      RuntimeError: the process ends early, for example without PyTorch.
    """
    command = [str(python), "-W", "ignore", "-m", "benchmarks.compression.torch_worker"]
    request = {"sizes": list(sizes), "density": density, "threads": threads}
    with answering_process(command, REPOSITORY) as worker:
        yield TorchSelection(worker, worker.ask(json.dumps(request)))
