"""One line tells a worker what to train."""

from benchmarks.time_to_accuracy.ddp import Ddp
from benchmarks.time_to_accuracy.methods import METHODS, Method
from benchmarks.time_to_accuracy.specification import Specification


def test_a_specification_is_read_as_it_was_written():
    for method in METHODS:
        written = Specification("CNN on MNIST", tuple(method), 2, Ddp(4, True))
        read = Specification.read(written.text())
        assert read == written
        assert Method(*read.method) == method
        assert "\n" not in written.text()
