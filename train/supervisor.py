"""``--supervise``: starts the processes of a run on this machine, and again after every fault.

The processes that run together are a *generation*. When one of them ends, the others end too, and
the next generation resumes from the last checkpoint: with as many processes, or, if ``min_workers``
allows it, without those that were lost, until it is time to try all of them again.
"""

import contextlib
import dataclasses
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from train.checkpoint import newest_complete_step
from train.config import Config
from train.config_rules import parts_of_batch
from train.errors import EXIT_CODE_BAD_INPUT, EXIT_CODE_DIVERGED, EXIT_CODE_FAULT, user_path
from train.signals import SIGNALS

# After the first process of a generation has ended, those that wait for it in a collective end by
# themselves within seconds. Others are killed.
GRACE_SECONDS = 30.0
# Generations in a row that end without a new checkpoint, after which a run is given up.
FRUITLESS_GENERATIONS = 5
_POLL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a generation has ended."""

    code: int  # of the process for which it ended; negative for a signal
    rank: int  # of that process
    lost: int  # processes that a signal has ended; if none, those that had to be killed
    seconds: float  # that it ran

    def __str__(self) -> str:
        if self.code >= 0:
            return f"process {self.rank} ended with code {self.code} after {self.seconds:.0f} s"
        name = signal.Signals(-self.code).name
        return f"process {self.rank} was ended by {name} after {self.seconds:.0f} s"


class StopRequest:
    """Ctrl-C or SIGTERM that this process has received; None until then."""

    signal_number: int | None = None
    count = 0


def supervise(config: Config, arguments: Sequence[str]) -> int:
    """Runs generation after generation until the run has finished; returns its exit code.

    `arguments` are those of the command line, from which `config` comes.
    """
    assert config.num_processes is not None and config.workdir is not None  # by check_config
    folder = user_path(config.workdir) / "checkpoints"
    processes, fruitless = config.num_processes, 0
    with stop_requests() as request:
        for generation in itertools.count(1):
            before = newest_complete_step(folder)
            start = "from the start" if before is None else f"from step {before}"
            say(f"generation {generation}: {processes} processes, {start}")
            rejoin = config.rejoin_seconds if processes < config.num_processes else None
            commands = command_lines(config, arguments, processes)
            # Of several processes one that hangs is found by the watchdogs first.
            patience = config.step_timeout + GRACE_SECONDS
            ended = run_generation(commands, rejoin, request, patience)
            if ended.code == 0:
                return 0
            if request.signal_number is not None:
                return 128 + request.signal_number
            if ended.code in (EXIT_CODE_BAD_INPUT, EXIT_CODE_DIVERGED):
                say(f"the run is given up: {ended}")
                return ended.code
            fruitless = 0 if newest_complete_step(folder) != before else fruitless + 1
            if fruitless == FRUITLESS_GENERATIONS:
                say(f"{fruitless} generations ended without a new checkpoint; the last: {ended}")
                return EXIT_CODE_FAULT
            say(str(ended))
            processes = next_processes(config, processes, ended.lost)
    raise AssertionError("generations do not end by themselves")


def next_processes(config: Config, before: int, lost: int) -> int:
    """The number of processes of the next generation: as many as are left and `config` allows."""
    assert config.num_processes is not None
    if lost == 0 or config.min_workers is None:
        return config.num_processes
    each = workers_of_process(config)
    for processes in range(before - lost, 0, -1):
        workers = processes * each
        fits = not (
            config.batch_size % parts_of_batch(config, workers) or workers % (config.nodes or 1)
        )
        if workers >= config.min_workers and fits:
            return processes
    return config.num_processes  # to wait for the lost ones is all that is left


def workers_of_process(config: Config) -> int:
    """The number of workers that one process has."""
    assert config.num_processes is not None
    return 1 if config.workers is None else config.workers // config.num_processes


def command_lines(config: Config, arguments: Sequence[str], processes: int) -> list[list[str]]:
    """One command for each process; options given last override those before."""
    address = f"127.0.0.1:{free_port()}"
    cluster = [
        "--no-supervise",
        "--min-workers",
        "None",
        "--rejoin-seconds",
        str(Config().rejoin_seconds),
        "--coordinator",
        address,
        "--num-processes",
        str(processes),
    ]
    common = [sys.executable, "-m", "train.supervised", str(os.getpid()), *arguments, *cluster]
    if config.workers is not None or config.num_processes != 1:  # else one drives all devices
        common += ["--workers", str(processes * workers_of_process(config))]
    return [[*common, "--process-id", str(rank)] for rank in range(processes)]


def run_generation(
    commands: Sequence[Sequence[str]],
    rejoin_seconds: float | None,
    request: StopRequest,
    patience: float,
) -> Ended:
    """Runs these processes until all have ended.

    After `rejoin_seconds`, or when this process is asked to stop, they are told to save and end.
    Those that have not after `patience` seconds are killed, and at once at a second request.
    """
    began = time.monotonic()
    running: dict[int, subprocess.Popen] = {}
    codes: dict[int, int] = {}  # in the order in which they end
    killed: set[int] = set()
    told_at, first_at = None, None
    try:
        for rank, command in enumerate(commands):
            # In a group of its own, or Ctrl-C would reach it too, and SIGTERM come as the second.
            running[rank] = subprocess.Popen(command, process_group=0)
        while running:
            time.sleep(_POLL_SECONDS)
            now = time.monotonic()
            due = rejoin_seconds is not None and now - began > rejoin_seconds
            if told_at is None and (due or request.signal_number is not None):
                told_at = now
                for process in running.values():
                    process.terminate()
            in_vain = told_at is not None and now - told_at > patience
            alone = first_at is not None and now - first_at > GRACE_SECONDS
            if in_vain or alone or request.count > 1:
                killed |= running.keys()
                for process in running.values():
                    process.kill()
            for rank, process in list(running.items()):
                if (code := process.poll()) is not None:
                    codes[rank] = code
                    first_at = first_at or now
                    del running[rank]
    finally:
        for process in running.values():
            process.kill()
    rank = cause(codes)
    # None is lost that was told to end; and when process 0 is lost, JAX aborts the others.
    by_signal = {rank for rank, code in codes.items() if code < 0 and code != -signal.SIGABRT}
    # One that is compiling does not notice a loss. It is killed, but not lost.
    lost = 0 if told_at is not None else len(by_signal - killed or by_signal)
    return Ended(codes[rank], rank, lost, time.monotonic() - began)


def cause(codes: dict[int, int]) -> int:
    """The process for which a generation has ended; `codes` are in the order of their ends.

    Bad input and a bug count before what they cause in other processes: process 0 ends last.
    """
    own = [
        rank for rank, code in codes.items() if code in (EXIT_CODE_BAD_INPUT, EXIT_CODE_DIVERGED)
    ]
    return next(iter([*own, *(rank for rank, code in codes.items() if code), *codes]))


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Records Ctrl-C and SIGTERM in the body."""
    request = StopRequest()

    def record(number: int, _frame) -> None:
        request.signal_number = number
        request.count += 1

    previous = {
        each: signal.signal(each, record)
        for each in SIGNALS
        if signal.getsignal(each) is not signal.SIG_IGN
    }
    try:
        yield request
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def say(text: str) -> None:
    """Prints one line about the run, beside those of its processes."""
    print(f"supervisor: {text}", file=sys.stderr, flush=True)
