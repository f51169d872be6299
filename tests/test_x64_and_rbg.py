"""Every compressor with 64-bit types, and with random keys of another implementation."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from claims import ALL_COMPRESSORS, made
from helpers import (
    assert_close,
    awkward_tree,
    first_state,
    largest,
    random_updates,
    run,
    slow_unless,
)

import jaxcompress

SETTINGS = {
    "x64": lambda: jax.enable_x64(True),
    "rbg": lambda: jax.default_prng_impl("rbg"),
}
# Of each way to encode or to travel one; with other keys, of those that use them. All others are
# slow tests.
QUICK = [
    ("natural()", "rbg"),
    ("power_sgd(2, orthogonalize='cholesky')", "x64"),
    ("two_phase(qsgd(8, group=64))", "x64"),
]
ON_ONE_AXIS = [text for text, claims in ALL_COMPRESSORS.items() if not claims.two_axes]


@pytest.mark.parametrize(("text", "setting"), slow_unless(QUICK, ON_ONE_AXIS, SETTINGS))
def test_the_law_holds_under_another_setting_of_jax(text, setting):
    with contextlib.ExitStack() as stack:
        stack.enter_context(SETTINGS[setting]())
        # Its arrays are float64 with x64, beside those of 32 and 16 bits; some are empty.
        tree = awkward_tree() | {"float32": jnp.zeros((20, 70), jnp.float32)}
        assert tree["matrix"].dtype == (jnp.float64 if setting == "x64" else jnp.float32)
        compressor, updates = made(text), random_updates(0, tree)
        outcome = run(compressor, updates, first_state(compressor, tree), how="vmap")
        again = run(compressor, updates, outcome.state, how="vmap")
        memory = jaxcompress.error_memory(outcome.state, updates)
        assert jax.tree.map(jnp.shape, outcome.mean) == jax.tree.map(jnp.shape, updates)
        parts = outcome.mean, outcome.residual, memory
        went = jax.tree.map(in_float64, *parts)
        found = jax.tree.map(lambda x, mean: jnp.asarray(x, mean.dtype), went, outcome.mean)
        # Terms that cancel are rounded by their own size.
        scale = max(1.0, largest((outcome.mean, outcome.residual)))
        rounding = ALL_COMPRESSORS[text].rounds * largest(memory)
        assert_close(found, jax.tree.map(in_float64, updates), scale, rounding)
        for x in jax.tree.leaves((again.mean, again.state)):
            assert not jnp.issubdtype(x.dtype, jnp.floating) or np.isfinite(x).all()


def in_float64(*parts):
    """The mean over the workers of a sum."""
    return sum(np.asarray(x, np.float64) for x in parts).mean(axis=0)
