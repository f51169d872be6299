"""What tracing a step costs in Python: calls are counted, since times are noisy."""

import sys

import jax
import jax.numpy as jnp

from jaxcompress import compress, dense, error_feedback, qsgd, top_k
from jaxcompress.compressors.builders.sparse import sparse

# The core of 2026-11 made 1,882 calls here, most of them sizing the same indices again and again.
BEFORE = 1882


def calls_of(trace) -> int:
    """The calls of functions of the library while `trace` runs."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call" and "/jaxcompress/" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        trace()
    finally:
        sys.setprofile(before)
    return count


def test_an_update_is_traced_in_a_third_of_the_calls_it_once_took(as_users_run_it):
    params = {"long": jnp.zeros((300, 40)), "square": jnp.zeros((64, 64))}
    link = compress(error_feedback(top_k(0.01, inner=qsgd(8))))
    state = link.init(params)
    step = jax.vmap(lambda grads: link.update(grads, state, params), axis_name="data")
    grads = jax.tree.map(lambda x: jnp.zeros((4, *x.shape)), params)
    assert 0 < calls_of(lambda: jax.make_jaxpr(step)(grads)) <= BEFORE / 3


def test_arrays_of_one_shape_are_traced_once():
    """Models repeat their layers, and tracing a selection takes tens of milliseconds."""
    selected = []

    def select(key, x):
        selected.append(x.shape)
        return jnp.zeros((len(x), 1), jnp.int32), x[:, :1]

    link = compress(error_feedback(sparse(select, dense(), kept=lambda length: 1)))
    params = {name: jnp.zeros(70_000) for name in "abcdef"} | {"g": jnp.zeros(80_000)}
    state = link.init(params)
    step = jax.vmap(lambda grads: link.update(grads, state, params), axis_name="data")
    jax.make_jaxpr(step)(jax.tree.map(lambda x: jnp.zeros((4, *x.shape)), params))
    # Once for the size of the message, and once for the step.
    assert sorted(selected) == [(1, 70_000)] * 2 + [(1, 80_000)] * 2
