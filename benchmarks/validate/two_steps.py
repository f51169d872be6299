"""Two steps of a reduction over all devices, and everything that the checks compare."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.common.compiler_options import QUICK_TO_COMPILE
from jaxcompress import Compressor, Traffic
from jaxcompress.base import AxisName

SHAPES = {"kernel": (3, 3, 16, 24), "vector": (37,)}


class Program(NamedTuple):
    """A compiled reduction and its inputs."""

    step: Any  # (key, updates, state) -> ((mean, residual, bits), state)
    updates: list[Any]  # of the two steps
    state: Any  # before the first
    formula: int  # bits of a step, from shapes alone
    requested: Traffic  # by the jaxpr
    compiled: Traffic  # by the compiled program


class Steps(NamedTuple):
    """Two steps, seen from outside.

    Every array has a first axis of workers, replicated ones too.
    """

    updates: list[Any]
    means: list[Any]
    residuals: list[Any]
    reported: int  # bits of a step from the compressor; the larger of both steps
    formula: int  # the same from shapes alone
    states: list[Any]  # before the first step and after each, as they are outside a step
    requested: Traffic  # by the jaxpr
    compiled: Traffic  # by the compiled program


def prepare(compressor: Compressor, mesh: Mesh) -> Program:
    """Compiles a reduction.

    It runs nothing on several devices together, so several threads may prepare at once.
    """
    params = {name: jnp.zeros(shape) for name, shape in SHAPES.items()}
    axes = _axes(mesh)
    first = optax.GradientTransformation(
        lambda params: compressor.init(jax.random.key(0), params), optax.identity().update
    )
    # That halves the time of a program that runs twice.
    options = QUICK_TO_COMPILE if mesh.devices.flat[0].platform == "cpu" else None
    begin = jax.jit(lambda params: jaxcompress.init_state(first, params, mesh, axes)).lower(params)
    state, updates = begin.compile(options)(params), [_random(number, mesh) for number in range(2)]
    # Compiled once, both to run and to count bytes.
    traced = jax.jit(_reduction(compressor, mesh)).trace(jax.random.key(0), updates[0], state)
    step = traced.lower().compile(options)
    formula = sum(jax.tree.leaves(compressor.message_bits(params)))
    requested, compiled = (
        jaxcompress.traffic_of_jaxpr(traced.jaxpr),
        jaxcompress.traffic_of_hlo(step.as_text()),
    )
    return Program(step, updates, state, formula, requested, compiled)


def two_steps(program: Program) -> Steps:
    """Reduces random updates of all workers twice, carrying the state."""
    states, means, residuals, bits = [program.state], [], [], []
    for number, updates in enumerate(program.updates):
        key = jax.random.key(number)
        (mean, residual, size), state = program.step(key, updates, states[-1])
        states.append(state)
        bits.append(int(size[0]))
        means.append(jax.device_get(mean))
        residuals.append(jax.device_get(residual))
    updates = [jax.device_get(one) for one in program.updates]
    counted = program.formula, states, program.requested, program.compiled
    return Steps(updates, means, residuals, max(bits), *counted)


def _axes(mesh: Mesh) -> AxisName:
    """All axes of a mesh, in the form that a step expects."""
    return mesh.axis_names if len(mesh.axis_names) > 1 else mesh.axis_names[0]


def _reduction(compressor: Compressor, mesh: Mesh) -> Any:
    axes = _axes(mesh)

    def one_worker(key, updates, state):
        updates = jax.tree.map(lambda x: x[0], updates)
        reduced, state = compressor.reduce(
            key, updates, jaxcompress.squeeze_worker_axis(state), axes
        )
        seen = (reduced.mean, reduced.residual, jnp.asarray(reduced.bits, jnp.float32))
        return jax.tree.map(lambda x: x[None], seen), jaxcompress.expand_worker_axis(state)

    def reduce(key, updates, state):
        specs = jaxcompress.state_specs(state, axes)
        sharded = jax.shard_map(
            one_worker,
            mesh=mesh,
            in_specs=(P(), P(axes), specs),
            out_specs=(P(axes), specs),
            check_vma=True,
        )
        return sharded(key, updates, state)

    return reduce


def _random(seed: int, mesh: Mesh) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    updates = {
        name: rng.standard_normal((mesh.size, *shape), np.float32) for name, shape in SHAPES.items()
    }
    return jaxcompress.shard_batch(updates, mesh, _axes(mesh))
