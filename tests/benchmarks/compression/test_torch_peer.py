"""The process that times PyTorch, with a stand-in for torch."""

import sys
from pathlib import Path

import pytest

from benchmarks.compression.torch_peer import torch_peer

STAND_IN = """
import time
__version__ = "2.0-stand-in"
class randn:
    def __init__(self, size, device): self.size, self.device = size, device
    def abs(self): return self
    def ravel(self): return self
    def numel(self): return self.size
def set_num_threads(threads): assert threads == 2
def manual_seed(seed): pass
def topk(x, k, sorted):
    assert (x.size, x.device, k, sorted) == (1000, "cpu", 10, False)
    time.sleep(0.01)
"""


def test_every_request_is_one_timed_selection(tmp_path, monkeypatch):
    Path(tmp_path, "torch.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with torch_peer(Path(sys.executable), "topk 0.01", [1000, 1000], 2, "cpu") as torch:
        assert torch.version == "2.0-stand-in"
        assert all(torch.milliseconds() >= 20 for _ in range(2))
    assert torch.worker.process.poll() is not None


def test_an_environment_without_torch_is_reported(tmp_path, monkeypatch, capfd):
    Path(tmp_path, "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        pytest.raises(RuntimeError, match="ended without an answer"),
        torch_peer(Path(sys.executable), "topk 0.01", [1000], 2, "cpu"),
    ):
        pass
    assert "no torch here" in capfd.readouterr().err
