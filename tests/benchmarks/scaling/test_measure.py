"""The points of the model; measuring needs root."""

import pytest

from benchmarks.scaling.measure import OPERATIONS, SENT_BYTES, is_fitted, payload, point
from jaxcompress import Collective


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("sent", SENT_BYTES)
def test_a_worker_sends_about_the_requested_bytes(operation, workers, sent):
    size = payload(operation, workers, sent)
    assert size % (4 * workers) == 0
    assert Collective(operation, ("float32",), size, workers).wire_bytes == pytest.approx(
        sent, rel=0.05
    )


def test_a_row_is_a_point():
    row = {
        "operation": "all-gather",
        "workers": "4",
        "rate": "100mbit",
        "payload_bytes": "1000",
        "ms": "2.5",
    }
    found = point(row)
    assert (found.one.wire_bytes, found.gbit, found.ms) == (3000, 0.1, 2.5)


@pytest.mark.parametrize(
    ("workers", "sent", "fitted"), [(2, 2**20, True), (8, 2**20, False), (4, 2**22, False)]
)
def test_other_sizes_and_more_hosts_are_held_out(workers, sent, fitted):
    row = {"operation": "all-reduce", "workers": workers, "rate": "1gbit", "ms": 1}
    assert is_fitted(point(row | {"payload_bytes": payload("all-reduce", workers, sent)})) == fitted
