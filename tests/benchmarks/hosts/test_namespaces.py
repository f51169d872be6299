"""Networks of namespaces, which need root: their links work, and nothing of them remains."""

import contextlib
import signal
import subprocess
import sys

import pytest

from benchmarks.hosts import namespaces
from benchmarks.hosts.namespaces import NETNS_FOLDER, bits_per_second, missing, network


def left() -> list[str]:
    """What there is of this process's networks."""
    return [
        line
        for line in subprocess.check_output(["ip", "netns", "list"], text=True).split()
        if ours(line)
    ]


def ours(name: str) -> bool:
    return name.startswith(f"jaxcompress-{namespaces.os.getpid()}-")


@pytest.fixture(scope="module")
def may_build():
    """Skips where this process may not make a network."""
    if lacks := missing():
        pytest.skip(f"needs {lacks[0]}")


@pytest.mark.parametrize(
    ("rate", "bits"), [("100mbit", 1e8), ("1gbit", 1e9), ("2.5gbit", 2.5e9), ("64kbit", 64e3)]
)
def test_rates_are_powers_of_a_thousand(rate, bits):
    assert bits_per_second(rate) == bits


@pytest.mark.parametrize("rate", ["100", "1 gbit", "1Gbit", "gbit", "1gbps", "0mbit", "0.0gbit"])
def test_another_notation_is_refused(rate):
    with pytest.raises(ValueError, match="as in 100mbit"):
        bits_per_second(rate)


def test_missing_requirements_are_listed(monkeypatch):
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        namespaces.shutil, "which", lambda program: None if program == "tc" else program
    )
    assert [each.split(",")[0] for each in missing()] == ["root", "the program tc"]


def test_root_that_a_container_holds_back_is_told(monkeypatch):
    def refused(*command):
        raise RuntimeError("ip netns add: Operation not permitted")

    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces.shutil, "which", lambda program: program)
    monkeypatch.setattr(namespaces, "_namespaces", list)
    monkeypatch.setattr(namespaces, "_run", refused)
    (lacks,) = missing()
    assert lacks.startswith("a machine that allows") and "Operation not permitted" in lacks


@pytest.mark.parametrize("left", [[], ["jaxcompress-7-host0"]])
def test_a_namespace_that_another_process_removes_first_is_no_error(left, monkeypatch):
    listed = iter([["jaxcompress-7-host0"], left])
    monkeypatch.setattr(namespaces, "_namespaces", lambda: next(listed))

    def gone(*command):
        raise RuntimeError("Cannot remove namespace file")

    monkeypatch.setattr(namespaces, "_run", gone)
    expected = pytest.raises(RuntimeError) if left else contextlib.nullcontext()
    with expected:
        namespaces._remove(7)


def test_hosts_find_their_own_address_under_their_own_name(may_build):
    program = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    with network(2) as hosts:
        found = [
            subprocess.check_output(hosts.command(host, [sys.executable, "-c", program]))
            for host in (0, 1)
        ]
    assert [one.decode().strip() for one in found] == ["10.0.0.1", "10.0.0.2"]


def test_a_link_carries_its_rate(may_build):
    sender = (
        "import socket; s = socket.create_connection(('10.0.0.1', 5000));"
        " s.sendall(bytes(500_000)); s.recv(1)"
    )
    receiver = """
import socket, time
with socket.create_server(('10.0.0.1', 5000)) as server:
    print('ready', flush=True)
    connection, _ = server.accept()
    begin, left = time.monotonic(), 500_000
    while left:
        left -= len(connection.recv(left))
    print(time.monotonic() - begin)
"""
    with network(2) as hosts:
        hosts.shape("10mbit")
        command = hosts.command(0, [sys.executable, "-c", receiver])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listening:
            assert listening.stdout.readline() == "ready\n"
            subprocess.run(hosts.command(1, [sys.executable, "-c", sender]), check=True)
            seconds = float(listening.stdout.readline())
    # 0.4 s, minus the bursts of two token buckets.
    assert 0.2 < seconds < 4


def test_an_error_ends_the_processes_and_removes_the_network(may_build):
    with pytest.raises(ZeroDivisionError), network(1) as hosts:
        sleeping = subprocess.Popen(hosts.command(0, ["sleep", "600"]))
        assert len(left()) == 2
        raise ZeroDivisionError
    assert sleeping.wait(10) == -9
    assert left() == []
    assert not [path for path in NETNS_FOLDER.iterdir() if ours(path.name)]


def ended_by(signal_number: int) -> int:
    """The exit status of a program that has a network when it gets this signal."""
    program = (
        "import os\nfrom benchmarks.hosts.namespaces import network\nwith network(1):\n"
        f"    os.kill(os.getpid(), {signal_number})"
    )
    root = namespaces.Path(namespaces.__file__).parents[2]
    return subprocess.run([sys.executable, "-c", program], cwd=root).returncode


def test_a_signal_ends_the_program_and_removes_the_network(may_build):
    assert ended_by(signal.SIGTERM) == 128 + signal.SIGTERM
    assert left() == []


def test_the_next_run_removes_the_network_of_a_killed_run(may_build):
    assert ended_by(signal.SIGKILL) == -signal.SIGKILL
    with network(1):
        names = subprocess.check_output(["ip", "netns", "list"], text=True).split()
    owners = {name.split("-")[1] for name in names if name.startswith("jaxcompress-")}
    assert all(namespaces.Path(f"/proc/{owner}").exists() for owner in owners)
