"""Events have names and seconds."""

import jax
import jax.numpy as jnp

from benchmarks.common.profiled_events import profiled_events


def test_the_profiler_times_what_is_compiled():
    traced = jax.jit(lambda x: jnp.sort(jnp.tanh(x)) * 3.25).trace(jnp.zeros(77))
    events = profiled_events(lambda: traced.lower().compile())
    seconds = {name: length for name, length in events if "backend_compile" in name}
    assert seconds and all(0 < length < 60 for length in seconds.values())
