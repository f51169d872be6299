"""What the benchmark reads from one compiled program."""

from typing import Any

import optax
from jax.sharding import Mesh

import jaxcompress
from benchmarks.common.compiler_options import QUICK_TO_COMPILE
from benchmarks.compiled import gpu, kernels, tpu
from benchmarks.compiled.cases import Case
from benchmarks.compiled.schedule import Span, spans
from benchmarks.compiled.traced_step import gradient_bytes, trace_step

IMAGES_PER_WORKER = 32


def compile_case(case: Case) -> tuple[dict[str, Any], list[Span]]:
    """A program's row, and its schedule on TPUs and GPUs."""
    arguments = {"bucket_bytes": int(float(case.buckets) * 2**20)} if case.buckets else {}
    compress = jaxcompress.compress(jaxcompress.parse(case.compressor), **arguments)
    mesh, flags = target(case)
    optimizer = optax.chain(compress, optax.sgd(0.1, momentum=0.9))
    traced = trace_step(optimizer, mesh, IMAGES_PER_WORKER)
    compiled = traced.lower().compile(flags)
    text = compiled.as_text()
    traffic = jaxcompress.traffic_of_hlo(text)
    found = spans(text) if case.platform != "cpu" else []
    on_gpu = case.platform in gpu.CARDS
    row = {
        **case._asdict(),
        "requested_bytes": jaxcompress.traffic_of_jaxpr(traced.jaxpr).wire_bytes,
        "wire_bytes": traffic.wire_bytes,
        "payload_bytes": traffic.payload_bytes,
        "collectives": sum(each.count for each in traffic.collectives),
        "temp_copies": f"{compiled.memory_analysis().temp_size_in_bytes / gradient_bytes():.2f}",
        "kernels": kernels.kernels(text) if on_gpu else "",
        "loops": kernels.loops(text) if on_gpu else "",
        **overlap(found),
    }
    return row, found


def target(case: Case) -> tuple[Mesh, dict[str, Any]]:
    """The devices that a case is compiled for, and the compiler's options."""
    asynchronous = case.flags == "asynchronous"
    if case.platform == "tpu":
        return tpu.tpu_mesh(case.workers), tpu.ASYNCHRONOUS if asynchronous else {}
    if case.platform in gpu.CARDS:
        flags = gpu.NO_AUTOTUNING | (gpu.ASYNCHRONOUS if asynchronous else {})
        return gpu.gpu_mesh(case.platform, case.workers), flags
    return jaxcompress.data_mesh(case.workers), QUICK_TO_COMPILE


def overlap(found: list[Span]) -> dict[str, Any]:
    """The columns on overlap of a program; empty without a schedule."""
    if not found:
        return {"overlapping": "", "early": "", "backward_between": ""}
    weights = [span.collective.wire_bytes for span in found]
    between = sum(
        weight * span.backward_between for weight, span in zip(weights, found, strict=True)
    ) / sum(weights)
    return {
        "overlapping": sum(span.asynchronous for span in found),
        "early": sum(span.backward_before < 1 for span in found),
        "backward_between": f"{between:.3f}",
    }


def schedule_row(case: Case, place: int, span: Span) -> dict[str, Any]:
    """One row of compiled_schedule.csv."""
    return {
        **case._asdict(),
        "place": place,
        "operation": span.collective.operation,
        "wire_bytes": span.collective.wire_bytes,
        "asynchronous": span.asynchronous,
        "backward_before": f"{span.backward_before:.3f}",
        "backward_between": f"{span.backward_between:.3f}",
        "step_between": f"{span.step_between:.3f}",
    }
