"""The traffic of a traced program, without its workers."""

import pytest
from helpers import slow

import jaxcompress
from benchmarks.scaling.averaging import averaging, collectives

GRADIENT_BYTES = 4 * 25_557_032


def test_dense_is_one_sum_of_everything():
    (total,) = collectives(averaging("dense()", 1024), 1024)
    assert (total.operation, total.payload_bytes, total.group) == (
        "all-reduce",
        GRADIENT_BYTES,
        1024,
    )
    assert total.wire_bytes == pytest.approx(2 * GRADIENT_BYTES * 1023 / 1024)


@pytest.mark.parametrize("workers", [16, *slow(2)])
def test_the_factors_of_power_sgd_are_separate_sums_and_all_bytes_of_the_program(workers):
    program = averaging("error_feedback(power_sgd(2))", workers)
    assert [one.operation for one in collectives(program, workers)] == ["all-reduce"] * 3
    whole = jaxcompress.traffic_of_jaxpr(program.jaxpr, {"data": workers}).payload_bytes
    assert sum(one.payload_bytes for one in collectives(program, workers)) == whole
