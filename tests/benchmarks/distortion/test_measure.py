"""Distortion of known arrays, and the bound."""

import jax.numpy as jnp
import numpy as np

from benchmarks.distortion.measure import bound, distortion
from jaxcompress import parse

GRADS = {"w": np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)}


def test_the_largest_entries_leave_the_energy_of_the_others():
    error, bits = distortion("top_k(0.1)", GRADS, 0)
    energies = np.sort(np.square(GRADS["w"].astype(np.float64)).ravel())
    assert abs(float(error) - energies[:-200].sum() / energies.sum()) < 1e-5
    assert float(bits) == float(parse("top_k(0.1)").message_bits(jnp.zeros((40, 50))))


def test_a_rank_is_measured_with_a_warm_start():
    left, values, right = np.linalg.svd(GRADS["w"])
    exact = 1 - np.sum(values[:2] ** 2) / np.sum(values**2)
    cold = {"w": (left[:, :2] * np.array([5.0, 3.0])) @ right[:2]}
    assert float(distortion("power_sgd(2)", cold, 0)[0]) < 1e-6
    assert exact <= float(distortion("power_sgd(2)", GRADS, 0)[0]) < 1


def test_the_bound_is_below_what_is_measured_with_as_many_bits():
    best = bound("task", "early", 0.1, GRADS)
    error, bits = distortion("top_k(0.1)", GRADS, 0)
    assert float(best["relative_error"]) <= float(error) + 1e-5
    assert float(best["bits_per_entry"]) <= float(bits) / 2000 + 1e-4
