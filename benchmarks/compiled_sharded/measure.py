"""What the benchmark reads from one compiled program, and how it is compared with dense."""

from collections import Counter
from typing import Any

from jax.sharding import Mesh

import jaxcompress
from benchmarks.common.results import Row
from benchmarks.compiled.kernels import kernels
from benchmarks.compiled_sharded.sharded_step import shard_bytes, trace_step
from benchmarks.compiled_sharded.stacked_transformer import Shape


def compile_step(
    compressor: str,
    mesh: Mesh,
    shape: Shape,
    sequences_per_device: int,
    flags: dict[str, Any] | None = None,
) -> Row:
    """The columns of one program."""
    traced = trace_step(compressor, mesh, shape, sequences_per_device)
    compiled = traced.lower().compile(flags or {})
    text = compiled.as_text()
    # TPU programs do not tell how often a loop runs. The only loops with collectives are those over
    # the layers.
    traffic = jaxcompress.traffic_of_hlo(text, mesh=mesh, rounds=shape.layers)
    slow, fast = traffic.over("data"), traffic.over("fsdp")
    memory = compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes
    return {
        "slow_wire_bytes": slow.wire_bytes,
        "slow_payload_bytes": slow.payload_bytes,
        "slow_collectives": _multiset(slow),
        "fast_wire_bytes": fast.wire_bytes,
        "fast_payloads": _payloads(fast),
        "fast_collectives": _multiset(fast),
        "kernels": kernels(text) if mesh.devices.flat[0].platform in ("gpu", "cuda") else "",
        "temp_bytes": memory.temp_size_in_bytes,
        "held_bytes": held - memory.alias_size_in_bytes,
        "shard_bytes": shard_bytes(mesh, shape),
    }


def as_dense(row: Row, dense: Row) -> str:
    """Whether the collectives over the fast axis are those of the dense program.

    They are ``"equal"`` one by one; or equal in ``"bytes"`` of each operation, if the compiler
    combined them in another way; or ``"different"``.
    """
    if row["fast_collectives"] == dense["fast_collectives"]:
        return "equal"
    return "bytes" if row["fast_payloads"] == dense["fast_payloads"] else "different"


def _multiset(traffic: jaxcompress.Traffic) -> str:
    """Executions, operation, dtypes and payload of each kind of collective."""
    found: Counter[str] = Counter()
    for one in traffic.collectives:
        kind = f"{one.operation} {'+'.join(one.dtypes)} {one.payload_bytes} B"
        # A collective that also crosses the other axis is not the same.
        found[f"{kind} over {'+'.join(one.axes)}"] += one.count
    return "; ".join(f"{count} {kind}" for kind, count in sorted(found.items()))


def _payloads(traffic: jaxcompress.Traffic) -> str:
    """The payload of each operation in a step."""
    found: Counter[str] = Counter()
    for one in traffic.collectives:
        found[one.operation] += one.count * one.payload_bytes
    return "; ".join(f"{operation} {size} B" for operation, size in sorted(found.items()))
