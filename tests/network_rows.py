"""Rows of the network benchmark, as if they had been measured."""

from benchmarks.hosts.host_processes import Measured
from benchmarks.network.methods import Method
from benchmarks.network.rows import row

ABOUT = {"version": "jax 1", "python": "3", "requested_bytes": 900_000, "compiled_bytes": 1_000_000}
USED = {"user_ms": 3.0, "system_ms": 1.0, "page_faults": 7.0, "waits": 5.0, "preemptions": 2.0}
SENT = (1_010_000, 100, USED)
FOUND = {"step": Measured([12.0, 10.0, 20.0], *SENT), "bare": Measured([9.0, 8.0, 9.5], *SENT)}


def made(
    method="dense()",
    framework="jax",
    workers=2,
    rate="1gbit",
    step_ms=10.0,
    round_=0,
    commit="abc",
):
    """A row of the file: so many ms of a step."""
    found = FOUND | {"step": Measured([step_ms], *SENT)}
    one = row(Method(framework, method), workers, rate, round_, found, ABOUT)
    return one | {"commit": commit}
