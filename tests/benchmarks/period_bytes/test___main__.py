"""The methods whose bytes are counted are those of the library."""

import optax
import pytest

import jaxcompress
from benchmarks.period_bytes.__main__ import METHODS, RESULTS, table


@pytest.mark.parametrize("name", METHODS)
def test_the_compressor_is_that_of_the_method(name):
    made = {
        "diloco": lambda: jaxcompress.diloco(optax.adamw(1e-3)),
        "sparse_loco": lambda: jaxcompress.sparse_loco(optax.adamw(1e-3)),
        "mu_loco": lambda: jaxcompress.mu_loco(1e-3),
        "demo": lambda: jaxcompress.demo(1e-3),
    }[name]
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        original = jaxcompress.compress

        def compress(compressor, *arguments, **options):
            seen.append(repr(compressor))
            return original(compressor, *arguments, **options)

        for module in ("periods.methods", "optimizers.demo"):
            patch.setattr(f"jaxcompress.{module}.compress", compress)
        made()
    assert seen == [METHODS[name]]


def test_sparse_loco_sends_at_most_a_quarter_of_a_bit():
    bits = {row["method"]: float(row["bits"]) for row in RESULTS.read()}
    assert bits["sparse_loco"] <= 0.25
    assert len(table(RESULTS.read())) == len(METHODS)
