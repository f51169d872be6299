"""What one run trains, as the controller tells its workers in one argument."""

import json
from typing import NamedTuple

from benchmarks.time_to_accuracy.ddp import Ddp
from benchmarks.time_to_accuracy.methods import Method

# Training is timed in parts of so many steps. Methods with periods average once in each part.
PART_STEPS = 10


class Specification(NamedTuple):
    """One run."""

    task: str  # of TASKS
    method: Method
    seed: int
    ddp: Ddp  # of PyTorch's methods

    def text(self) -> str:
        """One line, for `read`."""
        return json.dumps(self)

    @classmethod
    def read(cls, text: str) -> "Specification":
        """The run of a line that `text` wrote."""
        task, method, seed, ddp = json.loads(text)
        return cls(task, Method(*method), seed, Ddp(*ddp))
