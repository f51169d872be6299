"""Counts the bytes of one training step twice: as requested and as compiled."""

from typing import Any

from jaxcompress.profiling.collective import Branch, Traffic, largest
from jaxcompress.profiling.hlo_traffic import MeshShape, traffic_of_hlo
from jaxcompress.profiling.jaxpr_traffic import traffic_of_jaxpr


def traffic(
    step: Any,
    *args: Any,
    branch: Branch = largest,
    mesh: MeshShape | None = None,
    rounds: int | None = None,
) -> tuple[Traffic, Traffic]:
    """Traces and compiles `step`, and counts its collectives both ways, without running it.

    Both counts agree in bytes for float32 and for integers of at least one byte, unless the
    compiler merges equal collectives or moves one out of a loop. They differ if the backend changes
    a dtype. For a sharded model, only the compiled program has the collectives that XLA adds over
    the model's axes: compare both ``.over("data")``.

    Args:
      step: The result of `jax.jit` or `make_train_step`. On a `VirtualMesh` nothing is sent. To
        count as on that many devices, build the step for ``VirtualMesh(workers).abstract``.
      *args: The arguments of the step; for arrays `jax.ShapeDtypeStruct` works too.
      branch: Which branch of `cond` and `switch` counts: a function of one `Traffic` per branch. By
        default the largest. A loop that runs at most once counts as one.
      mesh: The mesh of the step, or its shape. With it, `Traffic.over` works on the compiled
        program too.
      rounds: How often a loop without a fixed length runs, if it holds collectives.

    Returns:
      The count from the jaxpr (requested), and the count from the compiled program.

    Raises:
      ValueError: if `step` cannot be traced, if a loop without a fixed length holds collectives and
        `rounds` is not given, if the mesh and the program differ in size, or if the backend shows
        no program text.

    Example:
      >>> import jax
      >>> step = jax.jit(lambda x: x + 1)
      >>> requested, compiled = traffic(step, jax.ShapeDtypeStruct((8,), "float32"))
      >>> requested.wire_bytes, compiled.wire_bytes
      (0, 0)
    """
    if not hasattr(step, "trace"):
        raise ValueError(f"step is what jax.jit or make_train_step returned; got {step!r}.")
    traced = step.trace(*args)
    text = traced.lower().compile().as_text()
    if text is None:
        raise ValueError("this backend does not show the text of a compiled program.")
    return (
        traffic_of_jaxpr(traced.jaxpr, branch=branch, rounds=rounds),
        traffic_of_hlo(text, branch, mesh, rounds),
    )
