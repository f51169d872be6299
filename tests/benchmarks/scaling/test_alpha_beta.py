"""A fit recovers the parameters, and none is negative."""

import itertools

import pytest

from benchmarks.scaling.alpha_beta import Line, Point, fit, relative_error, rounds


def made_by(line: Line, operation: str = "all-reduce") -> list[Point]:
    shapes = itertools.product((2, 4), (4096, 2**20, 2**24), (0.1, 1.0, 10.0))
    points = [Point(operation, *shape) for shape in shapes]
    return [point._replace(ms=line.ms(point)) for point in points]


@pytest.mark.parametrize("line", [Line(0.2, 1.05, 0.8), Line(0.2, 1.0, 0.0), Line(0.0, 2.0, 0.0)])
def test_a_fit_finds_the_line_that_made_the_points(line):
    assert fit(made_by(line)) == pytest.approx(line, abs=1e-6)


def test_no_term_is_negative():
    points = [
        point._replace(ms=point.ms * (1 + 0.3 * (point.workers == 2)))
        for point in made_by(Line(0, 1, 0))
    ]
    assert min(fit(points)) >= 0


def test_no_link_is_beyond_its_rate():
    bursts = [point._replace(ms=0.8 * point.ms) for point in made_by(Line(0, 1, 0))]
    assert fit(bursts) == Line(0, 1, 0)


def test_a_full_link_takes_as_long_as_its_bits():
    # 125,000,000 bytes are one gigabit.
    assert Line(0, 1, 0).ms(Point("all-gather", 2, 125_000_000, 1.0)) == pytest.approx(1000)


def test_more_workers_are_checked_on_the_same_line():
    line = Line(0.5, 1.0, 0.0)
    eight = Point("all-gather", 8, 4096, 1.0, ms=2 * line.ms(Point("all-gather", 8, 4096, 1.0)))
    assert relative_error(line, eight) == pytest.approx(-0.5)


def test_an_all_reduce_goes_around_twice():
    assert [
        rounds(name, 4) for name in ("all-gather", "all-to-all", "reduce-scatter", "all-reduce")
    ] == [3, 3, 3, 6]
