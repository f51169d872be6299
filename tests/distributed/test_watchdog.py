"""A process that waits for another one which is lost ends with one line that names it."""

import json
import re
import signal
import time

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import slow
from subprocesses import free_port, joined, run_together

from jaxcompress import Watchdog, is_connection_error
from jaxcompress.distributed.watchdog import _Row

# Workers average until one of them fails in its own way.
PROGRAM = """
import os, signal, time
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jaxcompress.data_mesh()
average = jax.jit(jax.shard_map(
    lambda x: jax.lax.pmean(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()))
x = jaxcompress.shard_batch(jnp.ones((1,)), mesh)
with jaxcompress.Watchdog({timeout}, lambda: "Try again.") as watchdog:
    for step in range({steps}):
        watchdog.step(step)
        average(x).block_until_ready()
        time.sleep(0.1)
        if step == 15 and jax.process_index() == {rank}:
            {fault}
print("finished")
"""


def run_three(fault, rank=1, timeout=30.0, steps=1000):
    """The exit code and the last line of standard error of each of three processes."""
    port = free_port()
    program = PROGRAM.format(fault=fault, rank=rank, timeout=timeout, steps=steps)
    results = run_together([joined(program, i, 3, port) for i in range(3)])
    return [(each.returncode, each.stderr.strip().splitlines()[-1:]) for each in results]


@pytest.mark.parametrize("rank", [1, *slow(2)])
def test_others_name_a_process_that_is_killed(rank):
    found = run_three("os.kill(os.getpid(), signal.SIGKILL)", rank)
    assert found.pop(rank)[0] == -signal.SIGKILL
    for code, (line,) in found:
        assert code == Watchdog.exit_code == 75
        assert re.fullmatch(rf"error: process {rank} has not been heard for \d s. Try again.", line)


def test_others_end_with_the_error_of_a_process_that_fails():
    found = run_three("raise OSError('the disk is full')")
    code, (line,) = found.pop(1)
    assert (code, line) == (1, "OSError: the disk is full")
    for code, (line,) in found:
        assert code == 75
        assert line == "error: process 1 has failed: the disk is full. Try again."


def test_process_that_is_stuck_ends_with_all_others_and_is_named():
    found = run_three("time.sleep(1000)", rank=0, timeout=6.0)
    lines = [line for _, (line,) in found]
    assert [code for code, _ in found] == [75, 75, 75]
    assert any("process 0 is in step 15" in line for line in lines)
    for line in lines:
        assert "has not ended for" in line
        assert line.endswith("a longer step timeout than 6 s. Try again.")


def test_processes_that_finish_end_well():
    found = run_three("pass", steps=20)
    assert [code for code, _ in found] == [0, 0, 0]


def test_one_process_needs_no_watchdog():
    with Watchdog() as watchdog:
        watchdog.step(0)
        watchdog.pause()


@pytest.mark.parametrize("step_timeout", [0, -1.0, float("nan"), "60", None, True])
def test_step_timeout_is_a_time(step_timeout):
    with pytest.raises(ValueError, match="in seconds, at least 5; got"):
        Watchdog(step_timeout)


def test_connection_errors_are_told_from_others():
    for message in (
        "UNKNOWN: Gloo all-reduce failed: Connection closed",
        "INTERNAL: NCCL operation ncclAllReduce failed: remote process exited",
        "UNAVAILABLE: failed to connect to all addresses",
        "DEADLINE_EXCEEDED: GetKeyValue() timed out",
        "ABORTED: The following tasks are unhealthy",
        "Barrier timed out. Barrier_id: start",
    ):
        assert is_connection_error(ValueError(message))
        assert not is_connection_error(ValueError("a long message " * 20 + message))
    assert not is_connection_error(ValueError("shapes (3,) and (4,) do not fit"))
    full = OSError(28, "No space left on device", "runs/NCCL/1")
    assert not is_connection_error(full)
    wrapped = ValueError(f"workdir cannot be used: {full}")
    wrapped.__cause__ = full
    assert not is_connection_error(wrapped)


BLOCKS = """
import sys, time
for block in range(2):
    with jaxcompress.Watchdog(20) as watchdog:
        watchdog.step(0)
        # A process that is late for a block is not mistaken for the one that has left the last.
        time.sleep(1 + 3 * (jax.process_index() == block))
        if block == 1 and jax.process_index() == 1:
            sys.exit(0)  # a good end
        time.sleep(2)
print("finished")
"""


def test_blocks_are_told_apart_and_a_good_end_harms_nobody():
    port = free_port()
    results = run_together([joined(BLOCKS, i, 2, port) for i in range(2)])
    assert [each.returncode for each in results] == [0, 0]
    assert "finished" in results[0].stdout


def test_end_with_a_code_of_its_own_does_not_wait_for_the_others():
    port = free_port()
    body = """
import sys, time
with jaxcompress.Watchdog(20) as watchdog:
    if jax.process_index() == 0:
        sys.exit(3)
    time.sleep(100)
"""
    found = run_together([joined(body, i, 2, port) for i in range(2)])
    assert [each.returncode for each in found] == [3, 75]
    assert found[1].stderr.strip().splitlines()[-1].startswith("error: process 0 has failed: 3.")


@pytest.mark.parametrize(
    ("steps", "where"),
    [({}, "all others left"), ({1: 7}, "all processes are in it"), ({1: 3}, "process 1 is in")],
)
def test_a_step_that_does_not_end_says_where_the_others_are(steps, where):
    watchdog = Watchdog(step_timeout=10.0)
    watchdog._rank, watchdog._step, watchdog._moved_at = 0, 7, 100.0
    watchdog._answered_at = time.monotonic()
    watchdog._rows = {rank: _Row(1, step, None) for rank, step in steps.items()}
    watchdog._rows[2] = _Row(9, 9, "left")
    watchdog._heard_at = dict.fromkeys(watchdog._rows, time.monotonic())
    assert watchdog._stuck(105.0) is None
    assert f"has not ended for 11 s, and {where}" in watchdog._stuck(111.0)
    watchdog.pause()
    assert watchdog._stuck(1e6) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step_timeout": 1}, "step_timeout is .* at least 5; got 1"),
        ({"step_timeout": float("nan")}, "step_timeout is .* got nan"),
        ({"advice": "resume it"}, "advice is a function that returns a text; got 'resume it'"),
    ],
)
def test_what_it_cannot_work_with_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Watchdog(**arguments)


def test_a_step_is_any_integer():
    watchdog = Watchdog()
    watchdog._threads = [None]
    for step in (3, np.int64(3), jnp.int32(3)):
        watchdog.step(step)
        assert json.dumps(watchdog._step) == "3"
    with pytest.raises(TypeError):
        watchdog.step(1.5)
