"""Hosts on one machine: each in a network namespace of its own, joined to a switch by a link of a given rate.

    host 0   eth0 ─── port0 ┐
    host 1   eth0 ─── port1 ┤ bridge, in a namespace of its own
    host 2   eth0 ─── port2 ┘

Both ends of a link are shaped by a token bucket (``tc … tbf``), so each host sends and receives at most at its rate,
both at once. No latency is added. Nothing is made outside these namespaces, but for their entries in ``/etc/netns``.
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
from typing import NamedTuple

SETTINGS = Path("/etc/netns")  # `ip netns exec NAME` lays the files of NAME's folder over /etc
PACKET_BYTES = 2**16  # the largest packet that the kernel hands on in one piece
_NAME = re.compile(r"jaxcompress-(\d+)-")  # whose number is that of the process which made it


class Network(NamedTuple):
    """Running hosts and their switch, by the names of their namespaces."""

    hosts: tuple[str, ...]
    switch: str

    def address(self, host: int) -> str:
        """Where the others reach this host."""
        return f"10.0.0.{host + 1}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """`command` as it runs on this host."""
        return ["ip", "netns", "exec", self.hosts[host], *command]

    def shape(self, rate: str) -> None:
        """Every link carries `rate` from now on, such as ``1gbit``, each way."""
        burst = max(PACKET_BYTES + 1024, int(bits_per_second(rate) / 8 * 1e-3))
        bucket = ["root", "tbf", "rate", rate, "burst", str(burst), "latency", "50ms"]
        for host, name in enumerate(self.hosts):
            _run("tc", "-n", name, "qdisc", "replace", "dev", "eth0", *bucket)
            _run("tc", "-n", self.switch, "qdisc", "replace", "dev", f"port{host}", *bucket)


def bits_per_second(rate: str) -> float:
    """What `tc` means by ``100mbit`` or ``2.5gbit``; ValueError for any other notation."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt])bit", rate)
    if not found:
        raise ValueError(f"a rate is a number with kbit, mbit, gbit or tbit, as in 100mbit; got {rate!r}.")
    return float(found[1]) * 1000 ** (1 + "kmgt".index(found[2]))


def missing() -> list[str]:
    """What this machine lacks for a network, in words; empty if nothing."""
    lacks = [] if os.geteuid() == 0 else ["root, to make network namespaces and to shape their links"]
    programs = [program for program in ("ip", "tc") if not shutil.which(program)]
    return lacks + [f"the program {program}, from the package iproute2" for program in programs]


@contextlib.contextmanager
def network(hosts: int) -> Iterator[Network]:
    """So many hosts, with unshaped links; they are gone afterwards, and so is what a killed run left behind."""
    for owner in {owner for owner in _owners() if not Path(f"/proc/{owner}").exists()}:
        _remove(owner)
    prefix = f"jaxcompress-{os.getpid()}-"
    made = Network(tuple(f"{prefix}host{host}" for host in range(hosts)), f"{prefix}switch")
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
        # JAX's gloo listens at the address that the machine's own name stands for.
        folder = SETTINGS / name
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{made.address(host)} {socket.gethostname()}\n")
        port = f"port{host}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", made.switch)
        _run("ip", "-n", made.switch, "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", name, "address", "add", f"{made.address(host)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", name, "link", "set", device, "up")


def _owners() -> list[int]:
    """The processes that made what there is: namespaces, and folders of settings."""
    folders = [path.name for path in SETTINGS.iterdir()] if SETTINGS.exists() else []
    return [int(found[1]) for name in [*_namespaces(), *folders] if (found := _NAME.match(name))]


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines()]


def _remove(owner: int) -> None:
    """Ends what runs in the namespaces of one owner, and removes them."""
    prefix = f"jaxcompress-{owner}-"
    for name in [each for each in _namespaces() if each.startswith(prefix)]:
        for process in _run("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        _run("ip", "netns", "delete", name)
    for folder in SETTINGS.glob(f"{prefix}*"):
        shutil.rmtree(folder)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Holds back the signals that would end this process half-way through."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _run(*command: str) -> str:
    """Runs a command out of reach of the keyboard's signals; RuntimeError with its own words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
