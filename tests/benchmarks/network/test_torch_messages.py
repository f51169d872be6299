"""Bytes of PyTorch's collectives; needs torch."""

import pytest

torch = pytest.importorskip("torch")


def test_a_ring_sends_what_the_formulas_say():
    from benchmarks.network.torch_messages import Message

    assert Message("all_gather", torch.int32, 10).wire_bytes(4) == 3 * 40
    assert Message("all_reduce", torch.float16, 10).wire_bytes(4) == 2 * 3 * 20 // 4
