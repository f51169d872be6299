"""What the profiler has timed is counted once, as the kind of work that it is."""

import time

import jax
import jax.numpy as jnp
import pytest

from benchmarks.step_profile import jax_steps
from benchmarks.step_profile.jax_steps import kinds_of, profiled
from benchmarks.step_profile.operation_kinds import CONVOLUTIONS, COPIES, OTHERS, PRODUCTS, STEPS


def convolve(image, kernel):
    return jax.lax.conv(image, kernel, (1, 1), "SAME")


MATRIX = jnp.ones((512, 512))
IMAGES, KERNEL = jnp.ones((4, 8, 32, 32)), jnp.ones((8, 8, 3, 3))
PROGRAMS = {
    CONVOLUTIONS: (convolve, (IMAGES, KERNEL)),
    PRODUCTS: (lambda x: x @ x, (MATRIX,)),
    COPIES: (lambda x: jnp.copy(x.T), (MATRIX,)),
    OTHERS: (jnp.tanh, (MATRIX,)),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_an_instruction_is_of_the_kind_of_what_is_fused_into_it(kind):
    function, arguments = PROGRAMS[kind]
    kinds = set(kinds_of(jax.jit(function).lower(*arguments).compile().as_text()).values())
    assert kind in kinds
    assert not kinds & ({CONVOLUTIONS, PRODUCTS} - {kind})


def test_all_operations_take_no_longer_than_the_steps():
    program, taken = jax.jit(lambda x: jnp.tanh(x @ x)).lower(MATRIX).compile(), []

    def step():
        begin = time.perf_counter()
        jax.block_until_ready(program(MATRIX))
        taken.append(1e3 * (time.perf_counter() - begin))

    found = profiled(step, program.as_text())
    assert found[PRODUCTS] > 0 and found[CONVOLUTIONS] == 0 and len(taken) == STEPS
    # A product may take several cores, but it is one event.
    assert sum(found.values()) <= sum(taken)


def test_a_profile_without_the_program_is_an_error(monkeypatch):
    program = jax.jit(jnp.tanh).lower(MATRIX).compile().as_text()
    monkeypatch.setattr(jax_steps, "profiled_events", lambda work: [("another", 1e-3)])
    with pytest.raises(RuntimeError, match="has timed no instruction"):
        profiled(lambda: None, program)


def test_the_events_of_a_loop_are_those_of_its_body(monkeypatch):
    program = """
HloModule m, is_scheduled=true

%body (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8] parameter(0)
  ROOT %dot.1 = f32[8,8] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (x: f32[8,8]) -> f32[8,8] {
  %x = f32[8,8] parameter(0)
  ROOT %call.1 = f32[8,8] call(%x), to_apply=%body
}
"""
    events = [("dot.1", 3e-3), ("call.1", 4e-3), ("ThunkExecutor::Execute", 9e-3)]
    monkeypatch.setattr(jax_steps, "profiled_events", lambda work: events)
    assert dict(profiled(lambda: None, program)) == {PRODUCTS: 3.0}
