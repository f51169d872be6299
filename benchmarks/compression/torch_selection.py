"""A process that runs `torch.topk` on request.

So torch runs in turns with JAX, on as many threads.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]


class TorchSelection(NamedTuple):
    """`torch.topk` on arrays of given sizes."""

    process: subprocess.Popen
    version: str

    def milliseconds(self) -> float:
        """One selection in every array."""
        return float(_answer(self.process, "run"))


@contextmanager
def torch_selection(
    python: Path, sizes: Sequence[int], density: float, threads: int
) -> Iterator[TorchSelection]:
    """Starts the process, and ends it on leaving.

    Raises:
      RuntimeError: the process ends early, for example without PyTorch.
    """
    command = [str(python), "-W", "ignore", "-m", "benchmarks.compression.torch_worker"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        try:
            request = {"sizes": list(sizes), "density": density, "threads": threads}
            yield TorchSelection(process, _answer(process, json.dumps(request)))
        finally:
            process.kill()


def _answer(process: subprocess.Popen, line: str) -> str:
    assert process.stdin and process.stdout
    with suppress(BrokenPipeError):
        print(line, file=process.stdin, flush=True)
    if not (answer := process.stdout.readline()):
        raise RuntimeError(
            f"{' '.join(process.args)} ended without an answer; its error is printed above."
        )
    return answer.strip()
