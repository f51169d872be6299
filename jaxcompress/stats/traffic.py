"""The bytes of one training step, counted twice: as the program asks for them, and as the compiler moves them."""

from typing import Any

from jaxcompress.stats.collective import Branch, Traffic, largest
from jaxcompress.stats.hlo_traffic import traffic_of_hlo
from jaxcompress.stats.jaxpr_traffic import traffic_of_jaxpr


def traffic(step: Any, *args: Any, branch: Branch = largest) -> tuple[Traffic, Traffic]:
    """Traces and compiles `step`, and counts its collectives both ways; runs nothing and donates nothing.

    The two agree in bytes for float32 and for integers of at least one byte, unless the compiler merges equal
    collectives or moves one out of a loop. They differ where the backend changes a dtype.

    Args:
      step: what `jax.jit` or `make_train_step` returned. On a `VirtualMesh` nothing is sent; the step that
        `make_train_step` builds for ``VirtualMesh(workers).abstract`` is counted as on so many devices.
      *args: the step's arguments; `jax.ShapeDtypeStruct` will do for arrays.
      branch: what counts of `cond` and `switch`: a function of one `Traffic` for each branch. The largest by default.

    Returns:
      The count from the jaxpr, and the count from the compiled program.

    Raises:
      ValueError: if `step` cannot be traced; collectives inside a loop without a fixed length, or a backend that shows
        no program text.

    Example:
      >>> import jax
      >>> step = jax.jit(lambda x: x + 1)
      >>> asked, moved = traffic(step, jax.ShapeDtypeStruct((8,), "float32"))
      >>> asked.wire_bytes, moved.wire_bytes
      (0, 0)
    """
    if not hasattr(step, "trace"):
        raise ValueError(f"step is what jax.jit or make_train_step returned; got {step!r}.")
    traced = step.trace(*args)
    text = traced.lower().compile().as_text()
    if text is None:
        raise ValueError("this backend does not show the text of a compiled program.")
    return traffic_of_jaxpr(traced.jaxpr, branch=branch), traffic_of_hlo(text, branch=branch)
