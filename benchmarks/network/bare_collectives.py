"""The collectives of a program without its computation.

The same operations run in the same order, on zeros of the same shapes and dtypes.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

COLLECTIVES = ("psum", "pmax", "pmin", "all_gather", "reduce_scatter", "all_to_all", "ppermute")


def bare_collectives(traced: Any, mesh: Mesh) -> tuple[Callable, list[list[jax.Array]]]:
    """The communication of a traced program, to be timed alone.

    Each collective waits for the one before it, as most of them do in the program.

    Args:
      traced: From ``jitted.trace(*args)``, of a function inside ``shard_map`` over one axis.
      mesh: The workers, along its axis "data".

    Returns:
      A jitted function and its argument: zeros for the inputs of each collective.
    """
    equations = list(_collectives(traced.jaxpr.jaxpr))

    def local(inputs):
        done, results = (), []
        for equation, arrays in zip(equations, inputs, strict=True):
            arrays, done = lax.optimization_barrier(([x[0] for x in arrays], done))
            done = equation.primitive.bind(*arrays, **equation.params)
            results.append(done)
        return results

    program = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P("data"), out_specs=P("data")))
    placed = jax.sharding.NamedSharding(mesh, P("data"))
    shapes = [[variable.aval for variable in equation.invars] for equation in equations]
    workers = mesh.shape["data"]
    zeros = jax.jit(
        lambda: [[jnp.zeros((workers, *one.shape), one.dtype) for one in each] for each in shapes],
        out_shardings=placed,
    )
    return program, zeros()


def _collectives(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The collectives of a program in order, including calls; a loop's body once."""
    for equation in jaxpr.eqns:
        if equation.primitive.name.removesuffix("_invariant") in COLLECTIVES:
            yield equation
            continue
        for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=_is_program):
            if _is_program(value):
                yield from _collectives(getattr(value, "jaxpr", value))


def _is_program(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")
