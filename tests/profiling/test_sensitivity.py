"""The choice of a level for each array: the dynamic programme, the errors, the result."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import energy
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcompress import error_feedback, parse, power_sgd, sensitivity, top_k, unparse
from jaxcompress.profiling.sensitivity import BINS, allocate

LEVELS = [top_k(0.01), top_k(0.05), top_k(0.2)]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_choice_is_the_best_of_all(seed):
    """By trying all choices of four arrays and three levels."""
    rng = np.random.default_rng(seed)
    # Whole bins, so that rounding plays no part.
    sizes = rng.integers(1, 400, (4, 3)) * 1.0
    errors = rng.random((4, 3))
    budget = float(rng.integers(int(sizes.min(1).sum()), 1200 + 400))
    scale = BINS / budget
    sizes = np.floor(sizes * scale) / scale
    found = allocate(errors, sizes, budget)

    def total(what, choice):
        return sum(what[array, level] for array, level in enumerate(choice))

    fitting = [
        total(errors, choice)
        for choice in itertools.product(range(3), repeat=4)
        if total(sizes, choice) <= budget + 1e-6
    ]
    assert total(sizes, found) <= budget + 1e-6
    assert total(errors, found) == pytest.approx(min(fitting))


def test_many_arrays_fit_a_budget_a_little_above_their_smallest_messages(monkeypatch):
    monkeypatch.setattr("jaxcompress.profiling.sensitivity.BINS", 100)
    arrays = 200
    errors, sizes = np.tile([1.0, 0.0], (arrays, 1)), np.tile([1.0, 2.0], (arrays, 1))
    chosen = allocate(errors, sizes, 1.2 * arrays)
    assert sizes[np.arange(arrays), chosen].sum() <= 1.2 * arrays
    assert 0.05 < np.mean(chosen) <= 0.2


def test_a_budget_of_exactly_the_smallest_messages_is_enough():
    sizes = np.array([[16_000.0, 17_000.0], [32_000.0, 40_000.0]])
    assert allocate(np.ones((2, 2)), sizes, 48_000.0) == [0, 0]


def test_a_budget_below_the_smallest_messages_is_refused():
    with pytest.raises(ValueError, match="smallest messages take 30 bits, and the budget is 29"):
        allocate(np.ones((3, 2)), np.array([[10.0, 20.0]] * 3), 29)


def loss_fn(params, batch):
    """Its gradient is the batch."""
    return sum((params[name] * batch[name]).sum() for name in params)


def batch_of(rng):
    """An array with few large entries, one of equal ones, and one that is too small."""
    peaked = rng.standard_normal(2000) ** 5
    return {"peaked": peaked, "flat": rng.choice([-1.0, 1.0], 2000), "bias": np.ones(3)}


@pytest.fixture(scope="module")
def batches():
    rng = np.random.default_rng(0)
    return [batch_of(rng) for _ in range(2)]


def test_the_result_fits_the_budget_and_has_the_least_error(batches):
    params = {name: jnp.zeros(x.shape) for name, x in batches[0].items()}
    found = sensitivity(params, loss_fn, batches, 0.15, LEVELS)
    text = unparse(found)
    assert unparse(parse(text)) == text

    def error(x, density):
        """Of the largest entries, in NumPy."""
        kept = max(1, round(density * x.size))
        return energy(np.sort(np.abs(x))[: x.size - kept])

    choices = {}
    for pair in itertools.product((0.01, 0.05, 0.2), repeat=2):
        named = dict(zip(("peaked", "flat"), pair, strict=True))
        bits = sum(top_k(d).message_bits({"x": params[name]})["x"] for name, d in named.items())
        if bits + 3 * 32 <= 0.15 * 32 * 4003:
            choices[pair] = sum(error(b[name], d) for b in batches for name, d in named.items())
    peaked, flat = min(choices, key=lambda pair: choices[pair])
    labels = found.call.arguments["labels"].call.arguments["patterns"]
    assert labels["peaked"] == f"top_k({peaked})"
    assert labels["flat"] == f"top_k({flat})"


def test_states_go_on_from_batch_to_batch():
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 30))
    params = {"w": jnp.zeros((40, 30))}
    found = sensitivity(params, loss_fn, [{"w": matrix}] * 5, 0.5, [power_sgd(1), power_sgd(3)])
    assert (
        repr(found) == "partition({'power_sgd(3)': power_sgd(3)}, by_path({'w': 'power_sgd(3)'}))"
    )


def test_under_error_feedback_bfloat16_keeps_the_budget():
    params = {name: jnp.zeros(1000, jnp.bfloat16) for name in "ab"}
    rng = np.random.default_rng(0)
    batches = [{name: rng.standard_normal(1000).astype(np.float32) for name in "ab"}]
    levels = [top_k(k / 200) for k in range(1, 60, 3)]
    found = error_feedback(sensitivity(params, loss_fn, batches, 0.2, levels))
    sizes = jax.tree.leaves(found.message_bits(params))
    assert all(2 * size <= 16 * 1000 for size in sizes)  # what pays, and is not sent dense
    assert 0.15 * 32_000 < sum(sizes) <= 0.2 * 32_000


@pytest.mark.parametrize(
    ("params", "batch", "message"),
    [
        ({"w": jnp.zeros(9, int)}, {"w": np.ones(9)}, "floating parameters; 'w' is int"),
        ({"w": jnp.zeros(9)}, {"w": np.full(9, np.nan)}, "gradient of these batches is not finite"),
        ({}, {}, "got no array"),
        ({"a": {"b": jnp.zeros(9)}, "a/b": jnp.zeros(9)}, {}, "labels arrays by their paths"),
    ],
)
def test_arrays_without_an_error_are_refused(params, batch, message):
    with pytest.raises(ValueError, match=message):
        sensitivity(params, loss_fn, [batch], 0.5, LEVELS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": 0}, r"budget is the size of the messages.*in \(0, 1\]"),
        ({"budget": 1e-5}, "smallest messages take"),
        ({"levels": []}, "sensitivity chooses among levels"),
        ({"levels": top_k(0.1)}, "sensitivity chooses among levels"),
        ({"levels": ["top_k(0.1)"]}, "sensitivity"),
        ({"levels": [error_feedback(top_k(0.1))]}, "sensitivity"),
        ({"batches": []}, "measures errors on batches, and got none"),
    ],
)
def test_what_it_cannot_use_is_refused(batches, changes, message):
    params = {name: jnp.zeros(x.shape) for name, x in batches[0].items()}
    arguments = {"batches": batches, "budget": 0.1, "levels": LEVELS} | changes
    with pytest.raises(ValueError, match=message):
        sensitivity(params, loss_fn, **arguments)
