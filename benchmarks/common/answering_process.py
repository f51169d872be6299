"""A process that answers every line on its standard input with one line.

So programs of other environments or checkouts run in turns with this one.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class AnsweringProcess(NamedTuple):
    """A started process."""

    process: subprocess.Popen

    def ask(self, line: str) -> str:
        """Sends one line and waits for the answer.

        Raises:
          RuntimeError: the process ends without an answer.
        """
        assert self.process.stdin and self.process.stdout
        with suppress(BrokenPipeError):
            print(line, file=self.process.stdin, flush=True)
        if not (answer := self.process.stdout.readline()):
            raise RuntimeError(
                f"{' '.join(self.process.args)} ended without an answer; "
                "its error is printed above."
            )
        return answer.strip()


@contextmanager
def answering_process(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[AnsweringProcess]:
    """Starts `command` in `folder`, and ends it on leaving."""
    with subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    ) as process:
        try:
            yield AnsweringProcess(process)
        finally:
            process.kill()
