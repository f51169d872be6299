"""LAMB, and then its momentum in few bits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import FLOAT32, assert_close
from optimizer_helpers import WORKERS, largest_quarter, random_gradients, updates_of

from jaxcompress import compress, dense, error_feedback, sign, top_k
from jaxcompress.contrib.onebit_lamb import onebit_lamb

PARAMS = {
    "matrix": jnp.linspace(-1, 1, 96).reshape(8, 12),
    "vector": jnp.linspace(1, 2, 40),
    "zero": jnp.zeros(40),
}
SIGNS = compress(error_feedback(sign()))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_before_the_freeze_it_is_lamb(weight_decay):
    options = {
        "weight_decay": weight_decay,
        "mask": lambda tree: jax.tree.map(lambda x: x.ndim > 1, tree),
    }
    schedule, grads = optax.linear_schedule(0.01, 0.0, 30), random_gradients(PARAMS, 25)
    optimizer = onebit_lamb(schedule, SIGNS, freeze_step=25, **options)
    found, *_ = updates_of(optimizer, PARAMS, grads)
    expected, *_ = updates_of(
        optax.chain(compress(dense()), optax.lamb(schedule, **options)), PARAMS, grads
    )
    assert_close(found, expected, scale=0.01)


FREEZE, RATE, DECAY, B1, B2, EPS, BETA = 6, 0.01, 0.05, 0.8, 0.9, 1e-6, 0.7
LEAST, MOST, THRESHOLD = 0.9, 1.4, 0.15


def ratio_of(x: np.ndarray, step: np.ndarray) -> float:
    norms = np.linalg.norm(x), np.linalg.norm(step)
    return norms[0] / norms[1] if min(norms) > 0 else 1.0


def in_numpy(x: np.ndarray, grads: np.ndarray, sends) -> tuple[np.ndarray, list[float]]:
    """1-bit LAMB of one vector in float64, from gradients (steps, workers, n): its updates, and all
    factors.
    """
    x, m, v, error, found = x.astype(np.float64), 0.0, 0.0, np.zeros(grads.shape[1:]), []
    mean, factors, fresh = 0.0, [1.0], 0.0
    for t, g in enumerate(grads.astype(np.float64), start=1):
        if t <= FREEZE:
            m, v = B1 * m + (1 - B1) * g.mean(axis=0), B2 * v + (1 - B2) * g.mean(axis=0) ** 2
            fresh = v
        else:
            carried = B1 * m + (1 - B1) * g + error
            sent = np.stack([sends(row) for row in carried])
            error, old, m = carried - sent, m, sent.mean(axis=0)
            fresh = B2 * fresh + (1 - B2) * ((m - B1 * old) / (1 - B1)) ** 2
        then = np.sqrt(v / (1 - B2 ** min(t, FREEZE))) + EPS
        longest = np.inf if t <= FREEZE else (1 - B1) / np.sqrt((1 - B2) * (1 - B1**2 / B2))
        bare = np.clip(m / (1 - B1**t) / then, -longest, longest)
        whole = bare + DECAY * x
        if t <= FREEZE:
            coefficient = ratio_of(x, whole)
            mean = BETA * mean + (1 - BETA) * coefficient
        else:
            factor = np.max(then / (np.sqrt(fresh / (1 - B2**t)) + EPS))
            part = min(1, np.linalg.norm(bare) / np.linalg.norm(whole))
            factor = np.clip(factor * part + 1 - part, LEAST, MOST)
            factors.append(
                np.clip(factor, factors[-1] * (1 - THRESHOLD), factors[-1] * (1 + THRESHOLD))
            )
            coefficient = mean / (1 - BETA**FREEZE) * factors[-1]
        found.append(-RATE * coefficient * whole)
        x = x + found[-1]
    return np.stack(found), factors[1:]


@pytest.mark.parametrize(
    ("compressor", "sends", "met"),
    [(top_k(0.25), largest_quarter, {MOST}), (dense(), lambda x: x, {LEAST, MOST})],
    ids=["top_k", "dense"],
)
def test_across_the_freeze_it_equals_numpy(compressor, sends, met):
    # Gradients that shrink after the freeze, in one array, and grow in the other: the factor moves
    # up and down.
    grads, steps = random_gradients(PARAMS, 24), np.arange(24)[:, None, None]
    grads["matrix"] = grads["matrix"] * (0.7 ** np.maximum(steps - FREEZE, 0))[..., None].astype(
        np.float32
    )
    grads["vector"] = grads["vector"] * (1.5 ** np.maximum(steps - FREEZE, 0)).astype(np.float32)
    optimizer = onebit_lamb(
        RATE,
        compress(error_feedback(compressor), min_compression_rate=0.0),
        freeze_step=FREEZE,
        **{"b1": B1, "b2": B2, "eps": EPS, "weight_decay": DECAY, "coeff_beta": BETA},
        **{"factor_min": LEAST, "factor_max": MOST, "factor_threshold": THRESHOLD},
    )
    found, _, state = updates_of(optimizer, PARAMS, grads)
    seen = []
    for name, each in grads.items():
        expected, factors = in_numpy(
            np.asarray(PARAMS[name]).ravel(), each.reshape(24, WORKERS, -1), sends
        )
        ours = np.stack([np.asarray(one[name]).ravel() for one in found])
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=FLOAT32["atol"] * RATE)
        np.testing.assert_allclose(state[0].factor[name], factors[-1], rtol=1e-4)
        seen += factors
    # The oracle has met the bounds, and values between them. Entries that top_k never sends keep
    # the factor high.
    assert met <= set(seen) and any(LEAST < factor < MOST for factor in seen)


def test_without_parameters_it_says_what_is_missing():
    optimizer = onebit_lamb(0.1, SIGNS, freeze_step=5)
    with pytest.raises(ValueError, match="onebit_lamb scales steps by the norm of the parameters"):
        optimizer.update(PARAMS, optimizer.init(PARAMS))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"coeff_beta": 1}, r"coeff_beta is the decay of a running mean, in \[0, 1\); got 1"),
        ({"factor_min": 0}, "0 < factor_min <= 1 <= factor_max; got 0 and 4.0"),
        ({"factor_min": 1.5}, "0 < factor_min <= 1 <= factor_max; got 1.5 and 4.0"),
        ({"factor_max": 0.9}, "0 < factor_min <= 1 <= factor_max; got 0.5 and 0.9"),
        (
            {"factor_threshold": 0},
            "factor_threshold is how far a factor may move in a step, above 0; got 0",
        ),
        (
            {"freeze_step": 0},
            "dense steps before the variance is frozen, an integer of at least 1; got 0",
        ),
    ],
)
def test_bad_arguments_are_refused_at_construction(options, words):
    with pytest.raises(ValueError, match=words):
        onebit_lamb(0.1, SIGNS, **options)
