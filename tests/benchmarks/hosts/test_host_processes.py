"""One process per host; here all hosts are this machine."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks.hosts.host_processes import TUNED, HostProcesses, Settings, _cores
from benchmarks.hosts.namespaces import Network

WORKER = """
import json, os, sys
rank, workers, address, argument = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
print("[Gloo] is connected")
cores = sorted(os.sched_getaffinity(0))
told = {"rank": rank, "workers": workers, "address": address, "cores": cores}
told |= {"policy": os.sched_getscheduler(0), "platforms": os.environ["JAX_PLATFORMS"]}
told["arenas"] = os.environ.get("MALLOC_ARENA_MAX")
print(json.dumps(told), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if argument == "broken" and rank == 1:
        sys.exit("worker 1 is broken")
    if argument == "killed" and rank == 1:
        os.kill(os.getpid(), 9)
    begins = [10.0 + rank + 5 * step for step in range(request["repeats"])]
    sent = {"sent_bytes": 10_000 * rank, "sent_packets": 8}
    used = {"user_ms": 6.0 + 2 * rank}
    ends = [begin + 2 for begin in begins]
    answer = {"begins": begins, "ends": ends, "result": {"rank": rank}, "used": used, **sent}
    print(json.dumps(answer), flush=True)
"""

UNTUNED = Settings("SCHED_OTHER", {"MALLOC_ARENA_MAX": "8"})


class Here(Network):
    """Hosts that are this machine."""

    def command(self, host, command):
        """The command itself."""
        del host
        return list(command)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts the stand-in on two hosts."""
    Path(tmp_path, "stand_in.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda argument, **options: HostProcesses(
        Here(("a", "b"), "switch"), sys.executable, "stand_in", argument, **options
    )


def test_a_step_lasts_from_the_first_begin_to_the_last_end(start):
    with start("whole") as processes:
        assert processes.ready()["rank"] == 0
        measured = processes.measure("step", warm_up=1, repeats=4)
    assert measured.ms == [3000.0] * 4
    assert measured.result == {"rank": 0}
    assert measured.used == {"user_ms": 7.0 / 4}
    # No bytes of one worker and 10,000 of the other, in four steps; eight packets of each.
    assert (measured.sent_bytes, measured.sent_packets, measured.payload_bytes) == (
        1250,
        2,
        1250 - 2 * 66,
    )


@pytest.mark.parametrize(
    ("cores", "workers", "expected"),
    [
        (2, 2, [{0}, {1}]),
        (2, 4, [{0}, {1}, {0}, {1}]),
        (8, 3, [{0, 1}, {2, 3}, {4, 5}]),
        (1, 2, [{0}, {0}]),
    ],
)
def test_workers_share_the_cores(cores, workers, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    assert [_cores(rank, workers) for rank in range(workers)] == expected


def test_every_worker_has_as_many_cores(start):
    with start("whole") as processes:
        ready = processes.ready()
    assert (ready["workers"], ready["address"]) == (2, "10.0.0.1")
    assert len(ready["cores"]) == max(1, len(os.sched_getaffinity(0)) // 2)


@pytest.mark.parametrize(
    ("options", "policy", "platforms"),
    [({}, "SCHED_BATCH", "cpu"), ({"settings": UNTUNED}, "SCHED_OTHER", "")],
)
def test_every_worker_has_the_scheduling_policy(start, options, policy, platforms):
    before = os.sched_getscheduler(0)
    with start("whole", **options) as processes:
        ready = processes.ready()
    # `initialize_processes` sets SCHED_BATCH where the platform is "cpu".
    assert (ready["policy"], ready["platforms"]) == (getattr(os, policy), platforms)
    assert os.sched_getscheduler(0) == before


def test_every_worker_has_the_variables_of_its_memory(start):
    for settings, arenas in [(TUNED["jax"], None), (TUNED["torch"], "1"), (UNTUNED, "8")]:
        with start("whole", settings=settings) as processes:
            assert processes.ready()["arenas"] == arenas


def test_if_one_worker_ends_all_are_ended_and_its_error_is_shown(start):
    with start("broken") as processes:
        processes.ready()
        with pytest.raises(RuntimeError, match="worker 1 exited with code 1: worker 1 is broken"):
            processes.measure("step", warm_up=0, repeats=1)


def test_a_killed_worker_is_reported_as_out_of_memory(start):
    with start("killed") as processes:
        processes.ready()
        with pytest.raises(
            RuntimeError,
            match="worker 1 exited with code -9, possibly out of memory",
        ):
            processes.measure("step", warm_up=0, repeats=1)
