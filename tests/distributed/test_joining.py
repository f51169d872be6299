"""What is refused when a process joins others, and what happens while they are missing."""

import socket

import jax
import pytest
from subprocesses import free_port, lines_of, run_python

from jaxcompress.distributed.joining import initialize_processes


@pytest.mark.parametrize(
    "arguments",
    [
        ("127.0.0.1:1", None, None),
        (None, 2, None),
        (None, None, 0),
        ("127.0.0.1:1", 2, None),
        (None, 2, 0),
    ],
)
def test_incomplete_arguments_of_a_process_are_refused(arguments):
    with pytest.raises(
        ValueError, match=r"go together, as in 10\.0\.0\.1:1234, 2 and 0; got coordinator="
    ):
        initialize_processes(*arguments)


@pytest.mark.parametrize(("num_processes", "process_id"), [(2, 2), (2, -1), (1, 1), (0, 0)])
def test_a_process_id_outside_its_processes_is_refused(num_processes, process_id):
    with pytest.raises(ValueError, match=f"counts from 0 .*; got {process_id} of {num_processes}"):
        initialize_processes("127.0.0.1:1", num_processes, process_id)


@pytest.mark.parametrize("coordinator", ["127.0.0.1", ":1234", "host:", "host:port", ""])
def test_a_coordinator_without_host_or_port_is_refused(coordinator):
    with pytest.raises(ValueError, match="coordinator is HOST:PORT of process 0"):
        initialize_processes(coordinator, 2, 0)


JOIN = """
import jaxcompress, os
try:
    jaxcompress.initialize_processes("127.0.0.1:{port}", 2, {place}, join_timeout=3)
except OSError as error:
    print(type(error).__name__, error, flush=True)
    os._exit(0)  # as the training program does: JAX still waits in a thread
"""


@pytest.mark.parametrize("place", [0, 1])
def test_a_process_that_waits_in_vain_for_the_others_says_so(place):
    (line,) = lines_of([run_python(JOIN.format(port=free_port(), place=place))])[0]
    assert line.startswith("TimeoutError not all processes have joined at 127.0.0.1:")
    assert f"within 3 s; this is process {place} of 2." in line


def test_a_port_that_another_program_uses_is_named():
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        (line,) = lines_of([run_python(JOIN.format(port=port, place=0))])[0]
    words = f"OSError process 0 cannot listen at its coordinator 127.0.0.1:{port}: Address"
    assert line.startswith(words)


def test_one_process_joins_nobody():
    assert initialize_processes("127.0.0.1:1", 1, 0) == 1
    assert jax.process_count() == 1


def test_without_a_cluster_a_process_stays_alone():
    program = """
import jax, jaxcompress
print(jaxcompress.initialize_processes())
print(jax.process_count(), jaxcompress.data_mesh().size)
"""
    assert lines_of([run_python(program)]) == [["1", "1 1"]]
