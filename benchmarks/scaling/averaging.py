"""The averaging of ResNet-50's gradients among any number of workers.

The program is traced only, so no worker needs to exist.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

import jaxcompress
from benchmarks.common.resnet50_shapes import resnet50_shapes
from jaxcompress import Collective


@dataclasses.dataclass(frozen=True)
class Averaging:
    """The traced program of one worker and the shapes of its inputs.

    The program is ``(gradients, state) -> (average, state)``.
    """

    workers: int
    jaxpr: ClosedJaxpr
    inputs: tuple[Any, Any]


def averaging(expression: str, workers: int) -> Averaging:
    """The program of `jaxcompress.compress` on the 161 float32 gradients."""
    optimizer = jaxcompress.compress(jaxcompress.parse(expression))
    grads = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in resnet50_shapes().items()
    }
    state = jax.eval_shape(optimizer.init, grads)
    jaxpr = jax.make_jaxpr(optimizer.update, axis_env=[("data", workers)])(grads, state)
    return Averaging(workers, jaxpr, (grads, state))


def collectives(program: Averaging) -> list[Collective]:
    """What the program sends; adjacent sums count as one, as XLA combines them."""
    found = []
    for is_sum, run in itertools.groupby(
        program.jaxpr.eqns, lambda one: one.primitive.name == "psum"
    ):
        parts = list(_collectives(list(run), program))
        found += [_together(parts)] if is_sum else parts
    return found


def _collectives(equations: list[Any], program: Averaging) -> Iterator[Collective]:
    part = ClosedJaxpr(program.jaxpr.jaxpr.replace(eqns=equations), program.jaxpr.consts)
    yield from jaxcompress.traffic_of_jaxpr(part, {"data": program.workers}).collectives


def _together(parts: list[Collective]) -> Collective:
    dtypes = tuple(sorted({dtype for part in parts for dtype in part.dtypes}))
    return parts[0]._replace(dtypes=dtypes, payload_bytes=sum(part.payload_bytes for part in parts))
