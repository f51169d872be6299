"""A process that runs `torch.topk` on request, so that it is timed between runs of ours and on the same threads."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class TorchSelection(NamedTuple):
    """`torch.topk` on arrays of given sizes."""

    process: subprocess.Popen
    version: str

    def milliseconds(self) -> float:
        """One selection in every array."""
        return float(_answer(self.process, "run"))


@contextmanager
def torch_selection(python: Path, sizes: Sequence[int], density: float, threads: int) -> Iterator[TorchSelection]:
    """Starts the process, and ends it.

    Raises:
      RuntimeError: if it ends early, as without torch.
    """
    command = [str(python), "-W", "ignore", "-m", "benchmarks.torch_selection_worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            asked = {"sizes": list(sizes), "density": density, "threads": threads}
            yield TorchSelection(process, _answer(process, json.dumps(asked)))
        finally:
            process.kill()


def _answer(process: subprocess.Popen, line: str) -> str:
    assert process.stdin and process.stdout
    with suppress(BrokenPipeError):
        print(line, file=process.stdin, flush=True)
    if not (answer := process.stdout.readline()):
        raise RuntimeError(f"{' '.join(process.args)} ended without an answer: its error stands above.")
    return answer.strip()
