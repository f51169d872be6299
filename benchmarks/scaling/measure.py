"""The measurements behind the model: bare collectives, and compression on one device."""

import json
import statistics
import sys
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp

from benchmarks.common.results import Row
from benchmarks.common.timing import WARM_UP, milliseconds
from benchmarks.hosts.host_processes import HostProcesses, Measured
from benchmarks.hosts.namespaces import FULL_SPEED, Network, bits_per_second, network
from benchmarks.scaling.averaging import averaging
from benchmarks.scaling.rate_model import Point
from jaxcompress import Collective
from jaxcompress.planning.measure import payload
from jaxcompress.planning.without_network import without_network

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SENT_BYTES = (2**12, 2**18, 2**20, 2**22, 2**24)  # about what one worker sends
# The model is fitted to these only; other sizes and more hosts check it.
FITTED_BYTES, FITTED_WORKERS = SENT_BYTES[::2], (2, 4)
LOCAL_WORKERS = (4, 8, 16)


def measure_collectives(
    workers: Sequence[int], rates: Sequence[str], repeats: int
) -> Iterator[list[Row]]:
    """Times every operation and size, between these hosts, at every rate; rows of one at a time."""
    for count in workers:
        requested = [
            (operation, payload(operation, count, sent))
            for operation in OPERATIONS
            for sent in SENT_BYTES
        ]
        with network(count) as hosts:
            hosts.shape(FULL_SPEED)
            with HostProcesses(
                hosts, sys.executable, "benchmarks.scaling.worker", json.dumps(requested)
            ) as processes:
                processes.ready()
                for operation, size in requested:
                    yield _rates(operation, size, rates, repeats, hosts, processes)


def measure_local(expression: str, workers: int, repeats: int) -> Row:
    """Times the computation of one of `workers` workers, on this process's device."""
    program = averaging(expression, workers)
    shapes = jax.tree.leaves(program.inputs)
    inputs = [_random(jax.random.key(place), shape) for place, shape in enumerate(shapes)]
    compiled = jax.jit(without_network(program.jaxpr, {"data": workers})).lower(*inputs).compile()
    times = [milliseconds(lambda: compiled(*inputs)) for _ in range(WARM_UP + repeats)][WARM_UP:]
    return {"compressor": expression, "workers": workers, **_times(times)}


def point(row: Row) -> Point:
    """A measured row as a point of the model; its time is the median."""
    size, workers = int(row["payload_bytes"]), int(row["workers"])
    one = Collective(row["operation"], ("float32",), size, workers, axes=("data",))
    return Point(one, bits_per_second(row["rate"]) / 1e9, float(row["ms"]))


def is_fitted(point: Point) -> bool:
    """Whether the model is fitted to this point; other points check it."""
    nearest = min(SENT_BYTES, key=lambda size: abs(size - point.one.wire_bytes))
    return point.one.group in FITTED_WORKERS and nearest in FITTED_BYTES


def _rates(
    operation: str,
    size: int,
    rates: Sequence[str],
    repeats: int,
    hosts: Network,
    processes: HostProcesses,
) -> list[Row]:
    rows = []
    for rate in rates:
        hosts.shape(rate)
        found = processes.measure(f"{operation} {size}", 1, repeats)
        rows.append(_row(operation, len(hosts.hosts), rate, size, found))
        print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    return rows


def _row(operation: str, workers: int, rate: str, size: int, found: Measured) -> Row:
    about = {"operation": operation, "workers": workers, "rate": rate, "payload_bytes": size}
    return {**about, **_times(found.ms), "interface_bytes": f"{found.sent_bytes:.0f}"}


def _times(ms: Sequence[float]) -> Row:
    return {
        "ms": f"{statistics.median(ms):.3f}",
        "min_ms": f"{min(ms):.3f}",
        "max_ms": f"{max(ms):.3f}",
    }


def _random(key: jax.Array, shape: jax.ShapeDtypeStruct) -> jax.Array:
    """Random numbers for gradients, memories and factors; a key stays a key."""
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.normal(key, shape.shape).astype(shape.dtype)
