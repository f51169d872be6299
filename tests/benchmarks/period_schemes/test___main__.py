"""The schemes build, and the table has a line for each."""

import jax.numpy as jnp
import optax
import pytest

from benchmarks.period_schemes.__main__ import Options, row_of, table
from benchmarks.period_schemes.schemes import SCHEMES, optimizer_of


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda one: f"{one.label} {one.period}")
def test_every_scheme_is_an_optimizer(scheme):
    params = {"w": jnp.zeros((4, 4)), "v": jnp.zeros((4, 8))}
    optimizer_of(scheme, optax.sgd(0.1)).init(params)
    # The steps beside an average are part of those between two.
    assert scheme.beside <= scheme.period // scheme.fragments


def test_every_scheme_has_rows_of_its_own():
    keys = [tuple(row_of(scheme, 0).values()) for scheme in SCHEMES]
    assert len(set(keys)) == len(keys)


def test_the_table_has_means_over_seeds():
    sent = {"bytes_per_step": "1000", "largest_message": "10000"}
    rows = [
        row_of(SCHEMES[0], seed) | {"validation_loss": str(loss)} | sent
        for seed, loss in enumerate((1.0, 2.0))
    ]
    (line,) = table(rows)
    assert line["validation loss"] == "1.500 ± 0.707"
    assert (line["KB a step"], line["KB at once"]) == ("1.0", "10")


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ValueError, match="no scheme"):
        Options(only=("nothing",))
