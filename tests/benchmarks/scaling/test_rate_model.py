"""A fit recovers the parameters, and none is negative."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scaling.rate_model import (
    Point,
    RateModel,
    fit,
    nonnegative_fit,
    relative_error,
)
from jaxcompress import Collective


def all_gather(workers: int, payload: int) -> Collective:
    return Collective("all-gather", ("float32",), payload, workers)


def made_by(model: RateModel) -> list[Point]:
    shapes = itertools.product((2, 4), (4096, 2**20, 2**24), (0.1, 1.0, 10.0))
    points = [Point(all_gather(workers, size), gbit) for workers, size, gbit in shapes]
    return [point._replace(ms=model.ms(point)) for point in points]


@pytest.mark.parametrize("model", [(0.2, 1.05, 0.8), (0.2, 1.0, 0.0), (0.0, 2.0, 0.0)])
def test_a_fit_finds_the_model_that_made_the_points(model):
    assert fit(made_by(RateModel(*model))) == pytest.approx(model, abs=1e-6)


def test_no_term_is_negative():
    points = [
        point._replace(ms=point.ms * (1 + 0.3 * (point.one.group == 2)))
        for point in made_by(RateModel(0, 1, 0))
    ]
    assert min(fit(points)) >= 0


def test_no_link_is_beyond_its_rate():
    bursts = [point._replace(ms=0.8 * point.ms) for point in made_by(RateModel(0, 1, 0))]
    assert fit(bursts) == RateModel(0, 1, 0)


def test_a_full_link_takes_as_long_as_its_bits():
    # 125,000,000 bytes are one gigabit.
    point = Point(all_gather(2, 125_000_000), 1.0)
    assert RateModel(0, 1, 0).ms(point) == pytest.approx(1000)


def test_more_workers_are_checked_on_the_same_model():
    model, eight = RateModel(0.5, 1.0, 0.0), Point(all_gather(8, 4096), 1.0)
    assert relative_error(model, eight._replace(ms=2 * model.ms(eight))) == pytest.approx(-0.5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_no_factor_is_negative_and_none_of_a_grid_is_better(seed):
    rng = np.random.default_rng(seed)
    terms, wanted = rng.standard_normal((5, 2)), rng.standard_normal(5)
    found = np.array(nonnegative_fit(terms, wanted))
    assert (found >= 0).all()
    grid = np.stack(np.meshgrid(*[np.linspace(0, 4, 81)] * 2), -1).reshape(-1, 2)
    missed = np.sum((grid @ terms.T - wanted) ** 2, axis=1)
    assert np.sum((terms @ found - wanted) ** 2) <= missed.min() + 1e-9
