"""Hosts on one machine: network namespaces, connected to a switch by links of a given rate.

    host 0   eth0 ─── port0 ┐
    host 1   eth0 ─── port1 ┤ bridge, in its own namespace
    host 2   eth0 ─── port2 ┘

A token bucket (``tc … tbf``) shapes both ends of a link, so each host sends and receives at its
rate, both at once. After a pause, what a link carries in a millisecond passes at once. No latency
is added. Outside these namespaces, only their entries in ``/etc/netns`` are created.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

NETNS_FOLDER = Path("/etc/netns")  # `ip netns exec NAME` lays the files of NAME's folder over /etc
SMALLEST_BURST = 4096  # bytes: two full packets of Ethernet
FULL_SPEED = "100gbit"  # what no host reaches
BURST_SECONDS = 1e-3  # a link that was idle passes on what it carries in this time at once
_NAME = re.compile(r"jaxcompress-(\d+)-")  # the id of the process that created it


class Network(NamedTuple):
    """The namespaces of running hosts and of their switch."""

    hosts: tuple[str, ...]
    switch: str

    def address(self, host: int) -> str:
        """The address at which the others reach this host."""
        return f"10.0.0.{host + 1}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """`command`, to be run on this host."""
        return ["ip", "netns", "exec", self.hosts[host], *command]

    def shape(self, rate: str) -> None:
        """Limits every link to `rate`, such as ``1gbit``, in each direction."""
        burst = max(SMALLEST_BURST, int(bits_per_second(rate) / 8 * BURST_SECONDS))
        bucket = ["root", "tbf", "rate", rate, "burst", str(burst), "latency", "50ms"]
        for host, name in enumerate(self.hosts):
            _run("tc", "-n", name, "qdisc", "replace", "dev", "eth0", *bucket)
            _run("tc", "-n", self.switch, "qdisc", "replace", "dev", f"port{host}", *bucket)


def bits_per_second(rate: str) -> float:
    """The number of bits in a rate of `tc`, such as ``100mbit`` or ``2.5gbit``.

    Raises:
      ValueError: the rate is written in another way.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt])bit", rate)
    if not found or not float(found[1]):
        raise ValueError(
            "a rate is a number above 0 with kbit, mbit, gbit or tbit, as in 100mbit; got"
            f" {rate!r}."
        )
    return float(found[1]) * 1000 ** (1 + "kmgt".index(found[2]))


def readable(rate: str) -> str:
    """100 Mbit/s for the 100mbit of `tc`."""
    number = rate.rstrip("abcdefghijklmnopqrstuvwxyz")
    return f"{number} {rate[len(number) :].capitalize()}/s"


def missing() -> list[str]:
    """What this machine lacks to create a network; empty if nothing."""
    lacks = (
        [] if os.geteuid() == 0 else ["root, to create network namespaces and shape their links"]
    )
    programs = [program for program in ("ip", "tc") if not shutil.which(program)]
    lacks += [f"the program {program}, from the package iproute2" for program in programs]
    if not lacks:
        # A container may hold root back, and a kernel may be built without what shapes links.
        try:
            with network(1) as hosts:
                hosts.shape("1gbit")
        except RuntimeError as error:
            lacks.append(f"a machine that allows network namespaces with shaped links ({error})")
    return lacks


@contextlib.contextmanager
def network(hosts: int) -> Iterator[Network]:
    """Creates hosts with unshaped links, and removes them at the end.

    It also removes what a killed run has left behind. Inside, SIGTERM and SIGHUP raise SystemExit,
    so that the hosts are removed then too.
    """
    for owner in {owner for owner in _owners() if not Path(f"/proc/{owner}").exists()}:
        _remove(owner)
    prefix = f"jaxcompress-{os.getpid()}-"
    made = Network(tuple(f"{prefix}host{host}" for host in range(hosts)), f"{prefix}switch")
    with _ended_by_signals():
        try:
            _build(made)
            yield made
        finally:
            with _undisturbed():
                _remove(os.getpid())


def _build(made: Network) -> None:
    _run("ip", "netns", "add", made.switch)
    _run("ip", "-n", made.switch, "link", "add", "bridge", "type", "bridge")
    _run("ip", "-n", made.switch, "link", "set", "bridge", "up")
    for host, name in enumerate(made.hosts):
        # JAX's gloo listens at the address of the machine's own name.
        folder = NETNS_FOLDER / name
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(
            f"127.0.0.1 localhost\n{made.address(host)} {socket.gethostname()}\n"
        )
        port = f"port{host}"
        _run("ip", "netns", "add", name)
        pair = ("type", "veth", "peer", "name", port, "netns", made.switch)
        _run("ip", "link", "add", "eth0", "netns", name, *pair)
        _run("ip", "-n", made.switch, "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", name, "address", "add", f"{made.address(host)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", name, "link", "set", device, "up")


def _owners() -> list[int]:
    """The process ids in the names of existing namespaces and settings folders."""
    folders = [path.name for path in NETNS_FOLDER.iterdir()] if NETNS_FOLDER.exists() else []
    return [int(found[1]) for name in [*_namespaces(), *folders] if (found := _NAME.match(name))]


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines()]


def _remove(owner: int) -> None:
    """Ends the processes in the namespaces of one owner, and removes the namespaces.

    Another process may remove those of a killed run at the same time.
    """
    prefix = f"jaxcompress-{owner}-"
    for name in [each for each in _namespaces() if each.startswith(prefix)]:
        try:
            for process in _run("ip", "netns", "pids", name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            _run("ip", "netns", "delete", name)
        except RuntimeError:
            if name in _namespaces():
                raise
    for folder in NETNS_FOLDER.glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    def leave(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    heeded = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) == signal.SIG_DFL
    ]
    for number in heeded:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Blocks the signals that would end this process during the clean-up."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _run(*command: str) -> str:
    """Runs a command in its own session, so that Ctrl-C does not reach it.

    Raises:
      RuntimeError: the command failed; the message has its standard error.
    """
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
