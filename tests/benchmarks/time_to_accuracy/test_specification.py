"""One line tells a worker what to train."""

from benchmarks.time_to_accuracy.ddp import Ddp
from benchmarks.time_to_accuracy.methods import METHODS
from benchmarks.time_to_accuracy.specification import Specification


def test_a_specification_is_read_as_it_was_written():
    for method in METHODS:
        written = Specification("CNN on MNIST", method, 2, Ddp(4, True))
        assert Specification.read(written.text()) == written
        assert "\n" not in written.text()
