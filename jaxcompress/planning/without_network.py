"""The computation of one of many workers, on one device: its program without communication.

Each collective becomes an operation of the same shape on the device: a sum becomes the worker's own
part, a gather becomes copies of it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxcompress.profiling.jaxpr_traffic import traffic_of_jaxpr


def without_network(closed: ClosedJaxpr, sizes: Mapping[str, int]) -> Callable[..., list[Any]]:
    """The program as a function of its flat inputs.

    Args:
      closed: From ``jax.make_jaxpr(f, axis_env=[("data", workers)])``; collectives are at its top,
        inside calls, or inside the branches of conditionals.
      sizes: The workers along each axis, as in ``{"data": workers}``.

    Raises:
      ValueError: when called, for a collective without a replacement.
    """
    return lambda *inputs: _run(closed.jaxpr, closed.consts, inputs, sizes)


def _run(
    jaxpr: Jaxpr, constants: Sequence[Any], inputs: Sequence[Any], sizes: Mapping[str, int]
) -> list[Any]:
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))

    def read(one):
        return one.val if isinstance(one, Literal) else values[one]

    for equation in jaxpr.eqns:
        replaced = _replaced(equation, [read(one) for one in equation.invars], sizes)
        if replaced is None:
            needed = list(
                dict.fromkeys(one for one in equation.invars if not isinstance(one, Literal))
            )
            alone = jaxpr.replace(
                constvars=[], invars=needed, outvars=equation.outvars, eqns=[equation]
            )
            _check_local(alone, sizes)
            replaced = jax.core.eval_jaxpr(alone, (), *(values[one] for one in needed))
        values.update(zip(equation.outvars, replaced, strict=True))
    return [read(one) for one in jaxpr.outvars]


def _replaced(equation: Any, arguments: list[Any], sizes: Mapping[str, int]) -> list[Any] | None:
    """The results of a replaced equation; None for one without communication."""
    name = equation.primitive.name
    if name == "axis_index":
        return [_unknown(jnp.int32(0))]
    if replace := _REPLACEMENTS.get(name.removesuffix("_invariant")):
        axes = equation.params.get("axes", equation.params.get("axis_name"))
        names = axes if isinstance(axes, tuple) else (axes,)
        workers = math.prod(sizes[one] for one in names)
        return [_unknown(replace(x, equation.params, workers)) for x in arguments]
    if name == "cond":
        index, *operands = arguments
        branches = [_branch(one, sizes) for one in equation.params["branches"]]
        return lax.switch(index.astype(jnp.int32), branches, *operands)
    if isinstance(inner := equation.params.get("jaxpr"), ClosedJaxpr) and name in ("jit", "pjit"):
        return _run(inner.jaxpr, inner.consts, arguments, sizes)
    return None


def _check_local(equation: Jaxpr, sizes: Mapping[str, int]) -> None:
    """ValueError if one equation that was not replaced communicates, as a loop may."""
    if traffic_of_jaxpr(ClosedJaxpr(equation, ()), sizes, rounds=1).collectives:
        raise ValueError(
            f"{equation.eqns[0].primitive.name} communicates, and has no replacement here."
        )


def _branch(branch: ClosedJaxpr, sizes: Mapping[str, int]) -> Callable[..., list[Any]]:
    return lambda *operands: _run(branch.jaxpr, branch.consts, operands, sizes)


def _unknown(x: jax.Array) -> jax.Array:
    """The same numbers, opaque to the compiler.

    Otherwise it could read one copy in place of all.
    """
    return lax.optimization_barrier(x)


def _sum(x: jax.Array, params: dict[str, Any], workers: int) -> jax.Array:
    if params.get("axis_index_groups") is not None:
        raise ValueError("a psum in groups has no replacement here.")
    return x


def _gather(x: jax.Array, params: dict[str, Any], workers: int) -> jax.Array:
    if params["tiled"]:
        raise ValueError("a tiled all_gather has no replacement here.")
    return jnp.repeat(
        jnp.expand_dims(x, params["all_gather_dimension"]), workers, params["all_gather_dimension"]
    )


def _scatter(x: jax.Array, params: dict[str, Any], workers: int) -> jax.Array:
    if params["tiled"]:
        raise ValueError("a tiled reduce_scatter has no replacement here.")
    return lax.index_in_dim(x, 0, params["scatter_dimension"], keepdims=False)


def _exchange(x: jax.Array, params: dict[str, Any], workers: int) -> jax.Array:
    if params["split_axis"] != params["concat_axis"]:
        raise ValueError("an all_to_all between two axes has no replacement here.")
    return x


_REPLACEMENTS: dict[str, Callable[[jax.Array, dict[str, Any], int], jax.Array]] = {
    "psum": _sum,
    "pmax": lambda x, params, workers: x,
    "pmin": lambda x, params, workers: x,
    "all_gather": _gather,
    "reduce_scatter": _scatter,
    "all_to_all": _exchange,
    "ppermute": lambda x, params, workers: x,
}
