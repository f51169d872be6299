"""Runs every benchmark that needs neither root, nor a GPU, nor another environment.

    python -m benchmarks.everything                        all of them, one after the other: hours
    python -m benchmarks.everything --only validate memories
    python -m benchmarks.everything --quick                small cases, which change no results

Each is a process of its own, whose rows go to benchmarks/results/ as always. One that fails does
not stop the others. `--quick` runs a small case of most in a copy of the checkout that is removed
afterwards: it shows that the benchmarks run, and measures nothing. The last lines are a table of
all commands: seconds, and ``ok``, ``failed``, or why it was left out. The exit code is 1 if one has
failed, and 130 after Ctrl-C. The data sets must be prepared: ``python -m train.data list``.
"""

import contextlib
import dataclasses
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tyro

from benchmarks.common.pages import REPOSITORY, markdown
from benchmarks.common.results import Row
from benchmarks.everything.commands import HERE, LEFT_OUT, Benchmark


@dataclasses.dataclass(frozen=True)
class Options:
    """Which benchmarks."""

    only: tuple[str, ...] = ()  # names of packages; without any, all
    quick: bool = False

    def __post_init__(self) -> None:
        """ValueError for a name of which nothing can run."""
        left_out = {one.name: one.needs for one in LEFT_OUT}
        for name in self.only:
            if name not in (known := {one.name for one in HERE}):
                raise ValueError(
                    f"{name} is left out: it needs {left_out[name]}."
                    if name in left_out
                    else f"no benchmark is called {name}; choose from {', '.join(sorted(known))}."
                )


def main(options: Options) -> int:
    """Runs one after the other, prints the summary, and returns the exit code."""
    named = [one for one in HERE if not options.only or one.name in options.only]
    runs = [one for one in named if not options.quick or one.quick is not None]
    print(announcement(runs, options.quick), flush=True)
    rows: list[Row] = []
    stopped = False
    with quick_checkout() if options.quick else contextlib.nullcontext(REPOSITORY) as folder:
        try:
            for number, one in enumerate(runs, 1):
                print(f"\n== {number} of {len(runs)}: {command(one, options.quick)}", flush=True)
                rows.append(run(one, options.quick, folder))
        except KeyboardInterrupt:
            stopped = True
    rows += [_left_out(command(one, options.quick), "not finished") for one in runs[len(rows) :]]
    rows += [_left_out(command(one), "no small case") for one in named if one not in runs]
    rows += [
        _left_out(_line(one.name, one.arguments), f"needs {one.needs}")
        for one in LEFT_OUT
        if not options.only or one.name in options.only
    ]
    print(f"\n{markdown(rows)}", flush=True)
    return 128 + signal.SIGINT if stopped else int(any(row["result"] == "failed" for row in rows))


def announcement(runs: list[Benchmark], quick: bool) -> str:
    """How many benchmarks are about to run, and for how long."""
    if quick:
        return f"{len(runs)} benchmarks, small cases of about a minute each; no results change"
    hours = sum(one.hours or 0 for one in runs)
    unknown = sum(one.hours is None for one in runs)
    more = f", and {unknown} of them an unknown time" * (unknown > 0)
    return f"{len(runs)} benchmarks: about {hours:.1f} hours on two cores{more}"


def run(one: Benchmark, quick: bool, folder: Path) -> Row:
    """Runs a benchmark of the checkout in `folder`; its row of the summary."""
    begin = time.perf_counter()
    module, *arguments = shlex.split(command(one, quick))[2:]
    done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=folder, check=False)
    return {
        "command": command(one, quick),
        "seconds": f"{time.perf_counter() - begin:.0f}",
        "result": "failed" if done.returncode else "ok",
    }


def command(one: Benchmark, quick: bool = False) -> str:
    """The command line of a benchmark."""
    return _line(one.name, (one.quick if quick else one.arguments) or ())


def _line(name: str, arguments: tuple[str, ...]) -> str:
    return shlex.join(["python", "-m", f"benchmarks.{name}", *arguments])


def _left_out(line: str, why: str) -> Row:
    return {"command": line, "seconds": "", "result": f"left out: {why}"}


@contextlib.contextmanager
def quick_checkout() -> Iterator[Path]:
    """A temporary copy of the files of the checkout, whose results a benchmark may overwrite.

    Raises:
      SystemExit: the files are not those of a git checkout.
    """
    found = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise SystemExit(f"--quick copies the files that git lists: {found.stderr.strip()}")
    with tempfile.TemporaryDirectory(prefix="quick-") as folder:
        for name in filter(None, found.stdout.split("\0")):
            if (REPOSITORY / name).is_file():  # git also lists what was removed
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, target)
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
