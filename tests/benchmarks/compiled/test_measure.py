"""What is read from a compiled program."""

from benchmarks.compiled.measure import overlap
from benchmarks.compiled.schedule import Span
from jaxcompress import Collective


def test_the_overlap_of_a_program_is_weighted_by_bytes():
    small, large = (Collective("all-gather", ("uint32",), size, 2) for size in (100, 300))
    found = [Span(small, False, 1.0, 0.0, 0.0, 0.0), Span(large, True, 0.2, 0.8, 0.1, 0.5)]
    assert overlap(found) == {"overlapping": 1, "early": 1, "backward_between": "0.600"}
