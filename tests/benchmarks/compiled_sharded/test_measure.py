"""A small sharded transformer: its fast axis carries what it carries without compression."""

import functools

import pytest
from helpers import slow

import jaxcompress
from benchmarks.compiled_sharded.measure import as_dense, compile_step
from benchmarks.compiled_sharded.programs import COMPRESSORS
from benchmarks.compiled_sharded.stacked_transformer import Shape

SMALL = Shape(layers=2, width=64, heads=4, vocabulary=256, context=32)


@functools.cache
def compiled(compressor):
    jaxcompress.virtual_cpu_workers(8)
    return compile_step(compressor, jaxcompress.hybrid_mesh({"data": 2, "fsdp": 4}), SMALL, 2)


# Each program takes long to compile; the last one has a memory, and is that of the last test too.
@pytest.mark.parametrize("compressor", [COMPRESSORS[-1], *slow(*COMPRESSORS[1:-1])])
def test_the_collectives_over_the_fast_axis_are_those_of_dense(compressor):
    row, dense = compiled(compressor), compiled(COMPRESSORS[0])
    assert as_dense(row, dense) == "equal"
    assert "all-gather" in dense["fast_collectives"]
    assert row["slow_wire_bytes"] < dense["slow_wire_bytes"]


def test_dense_sends_each_devices_shards_and_the_loss():
    dense = compiled(COMPRESSORS[0])
    assert dense["slow_payload_bytes"] == dense["shard_bytes"] + 4


def test_the_memory_is_one_copy_of_the_shards():
    row, dense = compiled(COMPRESSORS[-1]), compiled(COMPRESSORS[0])
    more = row["held_bytes"] - dense["held_bytes"]
    # The norms' scales are sent dense, and have no memory.
    assert 0.98 * dense["shard_bytes"] < more <= dense["shard_bytes"]
