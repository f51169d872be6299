"""What a run tells: its summary, and its metrics as JSON lines and TensorBoard events."""

import json
import math
import os
from pathlib import Path
from typing import Any, TypedDict

from tensorboardX import SummaryWriter

from train.errors import file_access


class Summary(TypedDict):
    """The last line on standard output of process 0, as JSON. Other tools read it: keys are only ever added.

    A number that is not finite is null: a diverged run stops without a summary, but its very last step may still make
    the test loss so.
    """

    test_accuracy: float  # fraction of the whole test set, of images or of next characters, that is hit, in [0, 1]
    test_loss: float  # mean cross-entropy over the whole test set, in nats an image or a character
    test_perplexity: float  # exp(test_loss), at least 1: customary for text, and given for images too
    train_loss: float  # mean cross-entropy over the steps of the last epoch's length
    steps: int  # optimizer steps of the whole run
    skipped_steps: int  # of them, those that were not taken, on any worker, because a gradient was not finite
    workers: int  # over how many workers gradients were averaged
    compressor: str  # the compressor's expression, in its canonical form
    bytes_per_step: float  # sent by one worker in one step, as the compiled program does it; of a switch, the most
    final_bytes_per_step: float  # the same of a switch's last choice, where a long enough run ends
    dense_bytes_per_step: float  # the same with the compressor `dense()`
    seconds: float  # in the training loop, evaluation and checkpoints included, compilation not; over all its parts


def to_json(values: Any) -> str:
    """One line of JSON, in which numbers that are not finite are null."""
    finite = {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in values.items()}
    return json.dumps(finite)


class MetricsLog:
    """Writes ``metrics.jsonl`` and TensorBoard events into a folder; without a folder it writes nothing."""

    def __init__(self, workdir: Path | None, step: int):
        """Opens the log of a run that goes on after `step`; what an earlier part logged beyond it is taken off."""
        self._lines = self._events = None
        if workdir is None:
            return
        path = workdir / "metrics.jsonl"
        with file_access(f"workdir {str(workdir)!r}"):
            forget_after(path, step)
            self._lines = path.open("a", encoding="utf-8")
            self._events = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Adds the values of one step."""
        if self._lines is None or self._events is None:
            return
        # Flushed line by line: a checkpoint never knows more than its log, however the run ends.
        with file_access(f"metrics file {self._lines.name!r}"):
            print(to_json({"step": step, **values}), file=self._lines, flush=True)
        for name, value in values.items():
            self._events.add_scalar(name, value, step)

    def close(self) -> None:
        """Ends both files."""
        if self._lines is not None and self._events is not None:
            self._lines.close()
            self._events.close()


def forget_after(path: Path, step: int) -> None:
    """Keeps only the lines of a metrics file up to `step`, in one atomic step; a line cut off in writing goes too."""
    if not path.exists():
        return
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    os.replace(unfinished, path)


def _step_of(line: str) -> float:
    """The step of a line of metrics; beyond all steps where the line is not whole."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf
