"""Generations of processes: which processes are started, and when a run is given up."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from train import supervisor
from train.config import Config, load_config
from train.config_rules import check_config
from train.supervisor import Ended, StopRequest, command_lines, next_processes, run_generation

CONFIG = Config(num_processes=4, workers=8, workdir="run", supervise=True, batch_size=120)


def program(text):
    return [sys.executable, "-c", text]


def test_lost_processes_are_left_out_only_if_the_config_allows_it():
    assert next_processes(CONFIG, 4, lost=1) == 4
    fewer = dataclasses.replace(CONFIG, min_workers=4)
    assert next_processes(fewer, 4, lost=0) == 4
    assert next_processes(fewer, 4, lost=1) == 3
    assert next_processes(fewer, 3, lost=1) == 2
    # One process would have 2 workers, fewer than 4: all are tried again.
    assert next_processes(fewer, 2, lost=1) == 4
    # 3 processes would have 6 workers, of which no 4 nodes can have equal parts.
    assert next_processes(dataclasses.replace(fewer, nodes=4), 4, lost=1) == 2
    # 3 processes would have 6 workers, and 128 rows do not divide by 6.
    assert next_processes(dataclasses.replace(fewer, batch_size=128), 4, lost=1) == 2


def test_each_process_is_told_its_place_and_the_workers_of_all():
    first, second = command_lines(CONFIG, ["config.yaml", "--workers", "8"], 2)
    own = str(os.getpid())
    assert first[1:5] == second[1:5] == ["-m", "train.supervised", own, "config.yaml"]
    assert first[-2:] == ["--process-id", "0"]
    assert second[-2:] == ["--process-id", "1"]
    assert first[-4:-2] == ["--workers", "4"]
    assert "--no-supervise" in first


def test_no_process_of_a_generation_is_refused():
    given = ["--min-workers", "4", "--rejoin-seconds", "9", "--batch-size", "120"]
    for command in command_lines(CONFIG, ["--supervise", "--workdir", "run", *given], 2):
        check_config(load_config(command[4:]))


def test_one_process_without_a_number_of_workers_drives_all_devices():
    alone = dataclasses.replace(CONFIG, num_processes=1, workers=None)
    (command,) = command_lines(alone, [], 1)
    assert "--workers" not in command
    (first, _) = command_lines(dataclasses.replace(CONFIG, num_processes=2, workers=None), [], 2)
    assert first[-4:-2] == ["--workers", "2"]


STOPPED_ONCE = """
import signal, time
received = []
signal.signal(signal.SIGINT, lambda *_: received.append(2))
signal.signal(signal.SIGTERM, lambda *_: received.append(15))
print("ready", flush=True)
while not received:
    time.sleep(0.01)
time.sleep(0.3)
raise SystemExit(0 if received == [15] else 9)
"""
SUPERVISOR = f"""
import sys
from train import supervisor
with supervisor.stop_requests() as request:
    command = [sys.executable, "-c", {STOPPED_ONCE!r}]
    print(supervisor.run_generation([command], None, request, 30.0).code, flush=True)
"""


def test_ctrl_c_reaches_a_process_once():
    """A terminal sends it to the whole group; the process gets SIGTERM from its supervisor."""
    # A shell starts what runs in the background with SIGINT ignored, and processes inherit that.
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    running = subprocess.Popen(
        program(SUPERVISOR), stdout=subprocess.PIPE, text=True, process_group=0
    )
    signal.signal(signal.SIGINT, earlier)
    assert running.stdout.readline() == "ready\n"
    os.killpg(running.pid, signal.SIGINT)
    assert running.communicate(timeout=60)[0] == "0\n"


def test_the_first_that_ends_badly_is_the_cause(monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.5)
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    ended = run_generation(
        [program("import time; time.sleep(100)"), program(killed)], None, StopRequest(), 100.0
    )
    # The other one did not end by itself. It was killed, but it is not lost.
    assert (ended.code, ended.rank, ended.lost) == (-signal.SIGKILL, 1, 1)
    assert str(ended).startswith("process 1 was ended by SIGKILL after ")


def test_a_process_that_has_to_be_killed_is_lost_if_no_other_was(monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.5)
    ended = run_generation(
        [program("import time; time.sleep(100)"), program("raise SystemExit(75)")],
        None,
        StopRequest(),
        100.0,
    )
    assert (ended.code, ended.rank, ended.lost) == (75, 1, 1)


def test_bad_input_of_one_process_counts_before_what_it_causes():
    assert supervisor.cause({1: 75, 0: 2}) == 0
    assert supervisor.cause({2: -9, 1: 75, 0: 75}) == 2
    assert supervisor.cause({1: 0, 0: -9}) == 0
    assert supervisor.cause({1: 0, 0: 0}) == 1


DEAF = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(sys.argv[1]).touch()
time.sleep(100)
"""


@pytest.mark.parametrize(("signals", "patience"), [(1, 1.5), (2, 1000.0)])
def test_processes_that_ignore_their_end_are_killed_late_or_at_a_second_signal(
    signals, patience, tmp_path
):
    ready, request = tmp_path / "deaf", StopRequest()

    def stop():
        while not ready.exists():
            time.sleep(0.01)
        request.count, request.signal_number = signals, signal.SIGTERM

    threading.Thread(target=stop, daemon=True).start()
    ended = run_generation([[*program(DEAF), str(ready)]], None, request, patience)
    assert ended.code == -signal.SIGKILL
    assert ended.seconds < 50


def test_a_generation_ends_well_when_all_processes_do():
    ended = run_generation([program("pass"), program("pass")], None, StopRequest(), 100.0)
    assert (ended.code, ended.lost) == (0, 0)


def test_processes_are_told_to_end_when_it_is_time_to_try_all_again():
    ended = run_generation([program("import time; time.sleep(100)")], 0.2, StopRequest(), 100.0)
    assert (ended.code, ended.lost) == (-signal.SIGTERM, 0)


@pytest.mark.parametrize(("codes", "expected"), [([75] * 5, 75), ([2], 2), ([1], 1), ([75, 0], 0)])
def test_a_run_is_given_up_when_it_cannot_go_on(codes, expected, tmp_path, monkeypatch, capsys):
    left = list(codes)
    monkeypatch.setattr(
        supervisor, "run_generation", lambda *_: Ended(left.pop(0), rank=1, lost=0, seconds=1.0)
    )
    config = dataclasses.replace(CONFIG, workdir=str(tmp_path))
    assert supervisor.supervise(config, []) == expected
    assert not left
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "supervisor: generation 1: 4 processes, from the start"
    if expected == 75:
        assert lines[-1].startswith("supervisor: 5 generations ended without a new checkpoint")


def test_a_run_that_makes_progress_is_never_given_up(tmp_path, monkeypatch):
    codes = [75] * 20 + [0]

    def run(*_):
        folder = tmp_path / "checkpoints" / str(len(codes))
        for old in tmp_path.glob("checkpoints/*/sha256.json"):
            old.unlink()
        folder.mkdir(parents=True)
        (folder / "sha256.json").write_text("{}")
        return Ended(codes.pop(0), rank=0, lost=1, seconds=1.0)

    monkeypatch.setattr(supervisor, "run_generation", run)
    assert supervisor.supervise(dataclasses.replace(CONFIG, workdir=str(tmp_path)), []) == 0


def test_the_signal_handlers_are_restored():
    before = signal.getsignal(signal.SIGTERM)
    with supervisor.stop_requests() as request:
        signal.raise_signal(signal.SIGTERM)
        assert request.signal_number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
