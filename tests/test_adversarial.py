"""Every compressor on updates that are made to break it, in arrays of awkward lengths; each is
compiled once.

A case is one step on bad updates and then one on normal ones. The law must hold in both, nothing
that is not finite may be left behind, and with error feedback nothing may be lost.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from claims import ALL_COMPRESSORS, made
from helpers import FLOAT32, WORKERS, Outcome, first_state, random_updates, run
from invariants import update_and_memory

import jaxcompress
from jaxcompress.feedback.momentum_correction import MomentumCorrectionState
from jaxcompress.profiling.monitor import Energies

# One entry, none, and lengths one off the blocks and groups in ALL_COMPRESSORS: 16, 32, 64 and, by
# 15 x 17, 256.
LIKE = {
    "scalar": jnp.zeros(()),
    "single": jnp.zeros((1,)),
    "empty": jnp.zeros((0, 3)),
    "below": jnp.zeros((63,)),
    "above": jnp.zeros((65,)),
    "matrix": jnp.zeros((15, 17)),
}
# Devices flush to zero what is below the normal range: each of the workers' entries, and what is
# made of them.
FLUSHED = 4 * WORKERS * float(np.finfo(np.float32).tiny)


def normal(seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Updates of all workers like any other's."""
    return {name: scale * np.array(x) for name, x in random_updates(seed, LIKE).items()}


def with_entry(
    updates: dict[str, np.ndarray], value: float, workers: range
) -> dict[str, np.ndarray]:
    """The same with one entry of every array that is this value, for each of these workers at
    another place.
    """
    for x in updates.values():
        rows = x.reshape(WORKERS, -1)
        for worker in workers if x.size else ():
            rows[worker, (7 * worker + 3) % rows.shape[1]] = value
    return updates


def filled_with(value: float) -> dict[str, np.ndarray]:
    """Updates whose entries are all equal."""
    return {name: np.full_like(x, value) for name, x in normal(0).items()}


FINITE = {
    "all equal": filled_with(1.5),
    "one huge entry": with_entry(normal(1, 1e-3), 1e30, range(1, 2)),
    "denormal": filled_with(1e-40),
    "one entry that is not zero": with_entry(filled_with(0.0), 1.0, range(WORKERS)),
}
NOT_FINITE = {
    "NaN on one worker": with_entry(normal(2), np.nan, range(2, 3)),
    "infinite on one worker": with_entry(normal(3), -np.inf, range(2, 3)),
}
CASES = FINITE | NOT_FINITE
NEXT = normal(4)

# One process of a parallel run takes all cases of a compressor, so that each is compiled once.
# One of each kind of arithmetic and memory is quick.
QUICK = {
    "two_phase(sign(32))",
    "qsgd(4)",
    "terngrad()",
    "float8()",
    "power_sgd(2, orthogonalize='cholesky')",
    "error_feedback(top_k(0.1), dtype='int8')",
    "ef21(top_k(0.1))",
}
every_compressor = pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            text,
            marks=[
                pytest.mark.xdist_group(text),
                *([] if text in QUICK else [pytest.mark.slow]),
            ],
        )
        for text in ALL_COMPRESSORS
        if not ALL_COMPRESSORS[text].two_axes
    ],
)


@functools.cache
def compressor_of(text: str) -> jaxcompress.Compressor:
    """With an error memory wherever it can have one; one object per text, so that its program is
    found again.
    """
    compressor = made(text)
    alone = compressor.has_memory or not compressor.contracts
    return compressor if alone else jaxcompress.error_feedback(compressor)


@functools.cache
def start_of(text: str):
    return first_state(compressor_of(text), LIKE)


def two_steps(text: str, case: str) -> tuple[Outcome, Outcome]:
    """The step on bad updates, and the one after it."""
    bad = run(
        compressor_of(text),
        jax.tree.map(jnp.asarray, CASES[case]),
        start_of(text),
        seed=1,
        how="vmap",
    )
    return bad, run(
        compressor_of(text), jax.tree.map(jnp.asarray, NEXT), bad.state, seed=2, how="vmap"
    )


def average(tree) -> dict[str, np.ndarray]:
    with np.errstate(invalid="ignore"):  # an infinite entry against an infinite one
        return jax.tree.map(lambda x: np.asarray(x, np.float64).mean(axis=0), tree)


def largest(*trees) -> float:
    """The largest finite magnitude: arrays that a scheme lays end to end round together."""
    leaves = [np.abs(np.asarray(x, np.float64)).ravel() for x in jax.tree.leaves(trees)]
    return max(float(np.max(x[np.isfinite(x)], initial=0.0)) for x in leaves)


def assert_near(found, expected, scale: float, rounding: float = 0.0) -> None:
    """Equal up to rounding wherever finite, and not finite in the same places; `rounding` is what
    is declared.
    """
    for name, x in found.items():
        finite = np.isfinite(expected[name])
        np.testing.assert_array_equal(np.isfinite(x), finite, err_msg=name)
        tolerance = FLOAT32["atol"] * scale + FLUSHED + rounding
        np.testing.assert_allclose(
            np.asarray(x, np.float64)[finite],
            expected[name][finite],
            rtol=FLOAT32["rtol"],
            atol=tolerance,
            err_msg=name,
        )


def is_finite(tree) -> bool:
    # A monitor's sums of squares are beyond float32 where an entry is 1e30.
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Energies))
    numbers = [
        x for x in nodes if not isinstance(x, Energies) and jnp.issubdtype(x.dtype, jnp.floating)
    ]
    return all(bool(jnp.all(jnp.isfinite(x))) for x in numbers)


def memory(state):
    return jaxcompress.error_memory(state, jax.tree.map(jnp.asarray, NEXT))


def added(*trees):
    return jax.tree.map(lambda *parts: sum(np.asarray(x, np.float64) for x in parts), *trees)


def carried_over(text: str, state) -> dict[str, np.ndarray]:
    """What of earlier steps the compressor adds to each worker's updates in the second step."""
    arguments = compressor_of(text).call.arguments
    # The learning rate of that entry halves in every step.
    factor = 2.0 if "learning_rate" in arguments else arguments.get("decay", 1.0)
    carried = jax.tree.map(lambda x: factor * np.asarray(x, np.float64), memory(state))
    if isinstance(state, MomentumCorrectionState):
        velocity = jax.tree.map(lambda x: 0.9 * np.asarray(x, np.float64), state.velocity.value)
        carried = added(carried, velocity)
    return carried


@every_compressor
@pytest.mark.parametrize("case", CASES)
def test_the_law_holds_and_the_mean_is_the_same_everywhere(text, case):
    bad, after = two_steps(text, case)
    inputs = CASES[case], added(NEXT, carried_over(text, bad.state))
    for outcome, came in zip((bad, after), inputs, strict=True):
        went = average(added(outcome.mean, outcome.residual, memory(outcome.state)))
        # Updates are rounded where they meet a shift, which a huge entry has made huge.
        shifts = getattr(bad.state, "own", None) if outcome is after else None
        scale = largest(came, outcome.sent, shifts)
        rounding = ALL_COMPRESSORS[text].rounds * largest(came)
        # Where an update is not finite, neither is the sum; the mean may be so in more places.
        seen = {
            name: np.isfinite(x).all(axis=0) & np.isfinite(outcome.mean[name][0])
            for name, x in came.items()
        }
        assert case in NOT_FINITE or all(x.all() for x in seen.values())
        assert_near(
            {name: x[seen[name]] for name, x in went.items()},
            {name: x[seen[name]] for name, x in average(came).items()},
            scale,
            rounding,
        )
        assert all(
            len({row.tobytes() for row in np.asarray(x)}) <= 1
            for x in outcome.mean.values()
            if x.size
        )


@every_compressor
@pytest.mark.parametrize("case", CASES)
def test_what_is_not_finite_does_not_stay(text, case):
    bad, after = two_steps(text, case)
    # Neither in the memories of any worker, nor in what all of them share, as warm starts: not even
    # for one step.
    assert is_finite((bad.state, memory(bad.state)))
    assert is_finite((after.mean, after.residual, after.state))
    assert case in NOT_FINITE or is_finite((bad.mean, bad.residual))


@every_compressor
@pytest.mark.parametrize("case", FINITE)
def test_nothing_is_lost(text, case):
    claims = ALL_COMPRESSORS[text]
    if claims.invariant or claims.entering is not update_and_memory:
        pytest.skip("its state follows another recursion: test_laws.py has the law of its steps")
    bad, after = two_steps(text, case)
    came = average(CASES[case])
    went = average(added(bad.mean, bad.residual, memory(bad.state)))
    # What is stored in fewer bits is rounded in each step, by a part of what is remembered.
    rounding = ALL_COMPRESSORS[text].rounds * largest(CASES[case], memory(after.state))
    assert_near(went, came, largest(CASES[case], bad.sent), rounding)
    came = added(came, average(NEXT))
    steps = (bad.mean, bad.residual, after.mean, after.residual, memory(after.state))
    went = average(added(*steps))
    assert_near(went, came, 2 * largest(CASES[case], NEXT, bad.sent, after.sent), 2 * rounding)
