"""Links between two hosts that are cut, that lose packets, or that become slow."""

import functools
import subprocess
import time
from pathlib import Path

from benchmarks.faults.cluster import Cluster
from benchmarks.faults.scenario import (
    Found,
    Scenario,
    require,
    require_identical,
    require_named,
    steps_lost,
)
from benchmarks.hosts.namespaces import Network, network

EPOCHS = 20
SECONDS = 5.0


def cut_for_ever(folder: Path) -> Found:
    """The link of one host is cut."""
    timeout = ("--step-timeout", "20")
    with network(2) as hosts:
        hosts.shape("100mbit")
        with Cluster(folder, "--epochs", "1000", *timeout, hosts=hosts) as cluster:
            cluster.wait_for_step(30)
            cluster.fault_now()
            set_link(hosts, "down")
            ended = cluster.wait(120.0)
            require(len(ended) == 2, "not all have ended")
            for rank in range(2):
                require_named(cluster, ended, rank, 1 - rank)
            seconds = max(each.seconds for each in ended.values())
            return Found(
                f"with {' '.join(timeout)}: each names the other", seconds, steps_lost(cluster)
            )


def disturbed(folder: Path, how: str) -> Found:
    """The link is disturbed for some seconds; the run goes on."""
    with network(2) as hosts:
        hosts.shape("100mbit")
        with Cluster(folder, "--epochs", str(EPOCHS), hosts=hosts) as cluster:
            cluster.wait_for_step(30)
            before = cluster.step()
            DISTURB[how][0](hosts)
            time.sleep(SECONDS)
            during = cluster.step() - before
            DISTURB[how][1](hosts)
            ended = cluster.finish()
            require([each.code for each in ended.values()] == [0, 0], cluster.errors(0).read_text())
        require_identical(cluster.workdir, EPOCHS, 2)
    return Found(f"goes on ({during} steps in these {SECONDS:g} s), bit-identical end", None, 0)


def set_link(hosts: Network, state: str) -> None:
    """Cuts the link of host 1, or connects it again."""
    subprocess.run(["ip", "-n", hosts.switch, "link", "set", "port1", state], check=True)


def lose(hosts: Network, percent: int) -> None:
    """Host 1 loses so many of the packets that it receives."""
    rules = "table ip loss {}; delete table ip loss;"
    if percent:
        rules += (
            "table ip loss { chain received { type filter hook input priority 0;"
            f" numgen random mod 100 < {percent} drop; }}; }};"
        )
    subprocess.run([*hosts.command(1, ["nft", "-f", "-"])], input=rules, text=True, check=True)


# How the link is disturbed, and how that ends.
DISTURB = {
    "cut": (lambda hosts: set_link(hosts, "down"), lambda hosts: set_link(hosts, "up")),
    "loss": (lambda hosts: lose(hosts, 30), lambda hosts: lose(hosts, 0)),
    "slow": (lambda hosts: hosts.shape("1mbit"), lambda hosts: hosts.shape("100mbit")),
}
SCENARIOS = {
    "link_cut": Scenario("link cut for ever", "ends with a message", cut_for_ever, True),
    **{
        f"link_{how}_for_a_while": Scenario(
            f"{text} for {SECONDS:g} s", "goes on", functools.partial(disturbed, how=how), True
        )
        for how, text in (
            ("cut", "link cut"),
            ("loss", "30 % of packets lost"),
            ("slow", "link at 1 Mbit/s"),
        )
    },
}
