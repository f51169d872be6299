"""Counts bytes in the jaxpr: what the program requests, before the backend changes it."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from jaxcompress.distributed.jaxprs import sub_jaxprs
from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.profiling.collective import Branch, Collective, Traffic, largest, repeated

# JAX has variants of each, such as psum_invariant and all_gather_start: see `_operation`.
_OPERATIONS = {
    "psum": "all-reduce",
    "pmax": "all-reduce",
    "pmin": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "ragged_all_to_all": "all-to-all",
    "ppermute": "collective-permute",
    "pbroadcast": "collective-broadcast",
}


def traffic_of_jaxpr(
    closed_jaxpr: ClosedJaxpr,
    axis_sizes: Mapping[str, int] | None = None,
    branch: Branch = largest,
    rounds: int | None = None,
) -> Traffic:
    """The collectives that a traced program requests.

    It follows `jit`, `shard_map`, `checkpoint`, `custom_vjp` and calls, and multiplies `scan` and
    `fori_loop` by their length. `vmap` removes its axis while tracing, so a program under it has no
    collectives. Trace the inner function with ``jax.make_jaxpr(f, axis_env=[("data", 8)])``
    instead.

    Args:
      closed_jaxpr: The result of ``jitted.trace(*args).jaxpr`` or `jax.make_jaxpr`.
      axis_sizes: Workers along each axis that no `shard_map` inside the program defines.
      branch: Which branch of `cond` and `switch` counts: a function of one `Traffic` per branch. By
        default the largest. A loop that runs at most once counts as one.
      rounds: How often a loop without a fixed length runs. Without it, such a loop must not hold
        collectives.

    Returns:
      One `Collective` for each operation in the program, in order.

    Raises:
      ValueError: if a loop without a fixed length holds a collective and `rounds` is not given, or
        if the size of an axis is unknown.

    Example:
      >>> import jax
      >>> make = jax.make_jaxpr(lambda x: jax.lax.psum(x, "data"), axis_env=[("data", 4)])
      >>> jaxpr = make(jax.numpy.ones(10))
      >>> traffic_of_jaxpr(jaxpr, {"data": 4}).wire_bytes  # 2 · 3/4 · 40
      60
    """
    if rounds is not None:
        check_integer("rounds", rounds, 0, "the rounds of each loop without a fixed length")
    sizes = dict(axis_sizes or {})
    axes = dict.fromkeys([*sizes, *_axes_of_meshes(closed_jaxpr.jaxpr)])
    return Traffic(tuple(_walk(closed_jaxpr.jaxpr, sizes, branch, rounds)), tuple(axes))


def _axes_of_meshes(jaxpr: Jaxpr) -> Iterator[str]:
    """The names of the axes that the program's `shard_map`s run on."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            yield from eqn.params["mesh"].shape
        for sub in sub_jaxprs(eqn.params):
            yield from _axes_of_meshes(sub)


def _walk(
    jaxpr: Jaxpr, axis_sizes: dict[str, int], branch: Branch, unknown: int | None
) -> Iterator[Collective]:
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if operation := _operation(name):
            yield from _collective(eqn, operation, axis_sizes)
            continue
        sizes = {**axis_sizes, **eqn.params["mesh"].shape} if name == "shard_map" else axis_sizes
        parts = list(sub_jaxprs(eqn.params))
        inner = [list(_walk(part, sizes, branch, unknown)) for part in parts]
        if name == "cond":
            if any(inner):
                yield from branch([Traffic(tuple(each)) for each in inner]).collectives
            continue
        if name == "while" and _at_most_one_round(eqn):
            body = parts.index(eqn.params["body_jaxpr"].jaxpr)
            if inner[body]:
                yield from branch([Traffic(()), Traffic(tuple(inner[body]))]).collectives
            continue
        for part, collectives in zip(parts, inner, strict=True):
            if collectives:
                # The condition of a loop also runs when it ends the loop.
                ends = name == "while" and part is eqn.params["cond_jaxpr"].jaxpr
                yield from repeated(collectives, _rounds(eqn, unknown) + ends)


def _at_most_one_round(loop: JaxprEqn) -> bool:
    """Whether the loop goes on by an entry of its state, which its body makes false."""
    (goes_on,) = loop.params["cond_jaxpr"].jaxpr.outvars
    state = loop.params["cond_jaxpr"].jaxpr.invars[loop.params["cond_nconsts"] :]
    if goes_on not in state:
        return False
    next_one = loop.params["body_jaxpr"].jaxpr.outvars[state.index(goes_on)]
    return isinstance(next_one, Literal) and not next_one.val


def _rounds(eqn: JaxprEqn, unknown: int | None) -> int:
    if eqn.primitive.name != "while":
        return eqn.params["length"] if eqn.primitive.name == "scan" else 1
    if unknown is None:
        raise ValueError(
            "a while loop whose number of rounds is not known holds collectives. Say by rounds=…"
            " how often such loops run; or use lax.scan, or lax.fori_loop with Python integers."
        )
    return unknown


def _operation(primitive: str) -> str | None:
    """The collective of a primitive, or None; None for ``_done`` halves of asynchronous pairs."""
    base = primitive.removeprefix("unreduced_").removesuffix("_start")
    return _OPERATIONS.get(base.removesuffix("_invariant").removesuffix("_reduced"))


def _collective(eqn: JaxprEqn, operation: str, axis_sizes: dict[str, int]) -> Iterator[Collective]:
    axes: Any = eqn.params.get("axes", eqn.params.get("axis_name"))
    # An integer is an axis of the array, added by `vmap`: summing over it sends nothing.
    names = [
        axis for axis in (axes if isinstance(axes, tuple) else (axes,)) if not isinstance(axis, int)
    ]
    if not names:
        return
    if missing := [name for name in names if name not in axis_sizes]:
        raise ValueError(
            f"the size of axis {missing[0]!r} is not known; pass axis_sizes={{{missing[0]!r}:"
            " workers}."
        )
    groups = eqn.params.get("axis_index_groups")
    group = len(groups[0]) if groups else math.prod(axis_sizes[name] for name in names)
    # The other operands of a ragged exchange are offsets, which are not sent.
    operands: list[Any] = [
        var.aval for var in eqn.invars[: 1 if "ragged" in eqn.primitive.name else None]
    ]
    yield Collective(
        operation,
        tuple(sorted({str(aval.dtype) for aval in operands})),
        sum(aval.size * aval.dtype.itemsize for aval in operands),
        2 if operation == "collective-permute" and group > 1 else group,
        axes=tuple(names),
    )
