"""The α-β line of an operation: rounds, bytes, and the fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress import Collective
from jaxcompress.planning.line import Line, fit, nonnegative_fit, rounds


def one(operation: str, payload: int = 4096, group: int = 4) -> Collective:
    return Collective(operation, ("float32",), payload, group)


def test_an_all_reduce_goes_around_twice():
    names = ("all-gather", "all-to-all", "reduce-scatter", "all-reduce", "collective-permute")
    assert [rounds(one(name)) for name in names] == [3, 3, 3, 6, 1]


@pytest.mark.parametrize("operation", ["all-reduce", "all-gather", "collective-permute"])
def test_a_group_of_one_takes_no_time(operation):
    assert Line(1.0, 8.0).ms(one(operation, group=1)) == 0


def test_a_line_is_rounds_and_bytes():
    # 125,000,000 bytes are one gigabit; a worker of two sends as much as its payload.
    assert Line(2.0, 8.0).ms(one("all-reduce", 125_000_000, 2)) == pytest.approx(4 + 1000)


@pytest.mark.parametrize("line", [Line(0.3, 8.0), Line(0.0, 80.0), Line(2.0, 0.0)])
def test_a_fit_finds_the_line_that_made_the_points(line):
    sizes = [one("all-gather", 2**power) for power in (10, 16, 20, 24)]
    assert fit([(each, line.ms(each)) for each in sizes]) == pytest.approx(line, abs=1e-6)


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
