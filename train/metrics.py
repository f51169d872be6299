"""What a run reports: its summary, and its metrics as JSON lines and TensorBoard events."""

import contextlib
import json
import math
import os
import time
from pathlib import Path
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import optax
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.summary import scalar
from tensorboardX.writer import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

import jaxcompress
from train.errors import file_access


class Summary(TypedDict):
    """The last line on standard output of process 0, as JSON. Keys are only ever added.

    A number that is not finite is null. A diverged run has no summary, but the last step of another
    run may make its test loss infinite.
    """

    # fraction of correct predictions on all examples of evaluate_on, in [0, 1]
    test_accuracy: float
    test_loss: float  # mean cross-entropy on the same examples, in nats per image or character
    test_perplexity: float  # exp(test_loss), at least 1; customary for text
    train_loss: float  # mean cross-entropy over as many of the last steps as make an epoch
    steps: int  # optimizer steps of the whole run, skipped ones included
    # steps skipped because a gradient was not finite: on all workers, with a period on one or more
    skipped_steps: int
    workers: int  # number of workers that average, at the end of the run
    compressor: str  # in canonical notation
    # sent by one worker in one step, by the compiled program; for a switch, the largest choice;
    # with a period, the average over the run
    bytes_per_step: float
    final_bytes_per_step: float  # the same for the last choice of a switch
    # sent in each step with the compressor `dense()` and without a period
    dense_bytes_per_step: float
    peak_bytes_per_step: float  # in the step that ends a period; without one, bytes_per_step
    # over the whole run, at the levels that one adaptive took; of several, and with buckets or
    # shards, by the choices that send the most
    mean_bytes_per_step: float
    # in the training loop with evaluation and checkpoints, without compiling the step; over all its
    # parts
    seconds: float


def to_json(values: Any) -> str:
    """One line of JSON, in which numbers that are not finite are null."""
    finite = {
        key: None if isinstance(x, float) and not math.isfinite(x) else x
        for key, x in values.items()
    }
    return json.dumps(finite)


# At least so often readers of TensorBoard's events see the latest.
FLUSH_SECONDS = 10.0


class MetricsLog:
    """Writes ``metrics.jsonl`` and TensorBoard events into a folder; nothing without a folder."""

    def __init__(self, workdir: Path | None, step: int):
        """Opens the log of a run that resumes after `step`, and removes its later lines."""
        self._lines = self._events = None
        if workdir is None:
            return
        path = workdir / "metrics.jsonl"
        with file_access(f"workdir {str(workdir)!r}"):
            drop_lines_after(path, step)
            self._lines = path.open("a", encoding="utf-8")
            self._folder = workdir
            folder = workdir / "tensorboard"
            folder.mkdir(exist_ok=True)
            # Not `SummaryWriter`: its thread ends at the first failed write, and `add_scalar` would
            # wait for the thread forever.
            self._events, self._flushed = EventsWriter(str(folder / "events")), time.monotonic()
            # TensorBoard then hides later events of an earlier part of the run.
            self._add_event(step + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, values: dict[str, float]) -> None:
        """Adds the values of one step."""
        if self._lines is None or self._events is None:
            return
        with file_access(f"metrics in {str(self._folder)!r}"):
            print(to_json({"step": step, **values}), file=self._lines, flush=True)
            for name, value in values.items():
                self._add_event(step, summary=scalar(name, value))
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Makes readers see all events. Before a checkpoint, so that they are never behind it.

        It waits for the disk, unlike the lines of JSON, which are flushed one by one.
        """
        if self._events is not None:
            with file_access(f"metrics in {str(self._folder)!r}"):
                self._events.flush()
            self._flushed = time.monotonic()

    def _add_event(self, step: int, **what: Any) -> None:
        assert self._events is not None
        self._events.write_event(Event(step=step, wall_time=time.time(), **what))

    def close(self) -> None:
        """Closes both files."""
        if self._lines is not None and self._events is not None:
            # What a full disk has lost, `write` has reported.
            for file in (self._lines, self._events):
                with contextlib.suppress(OSError):
                    file.close()


def compression_metrics(opt_state: optax.OptState) -> dict[str, float]:
    """What `jaxcompress.monitor` measured in the last step, averaged over the workers, and the
    level of `adaptive`.
    """
    means = _means(jaxcompress.monitor_metrics(opt_state))
    levels = level_metrics(opt_state)
    levels.pop("steps_at_level", None)
    return {name: float(value) for name, value in jax.device_get(means | levels).items()}


@jax.jit
def level_metrics(opt_state: optax.OptState) -> dict[str, jax.Array]:
    """`jaxcompress.levels`, in arrays that no step overwrites."""
    return jaxcompress.levels(opt_state)


@jax.jit
def _means(values: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """The mean over the workers of each value."""
    return jax.tree.map(jnp.mean, values)


def drop_lines_after(path: Path, step: int) -> None:
    """Atomically removes the lines of a metrics file after `step`, and an incomplete last line."""
    if not path.exists():
        return
    kept = [
        line for line in path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step
    ]
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    os.replace(unfinished, path)


def _step_of(line: str) -> float:
    """The step of a line of metrics; infinite if the line is incomplete."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf
