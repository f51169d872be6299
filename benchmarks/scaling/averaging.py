"""The averaging of ResNet-50's gradients among any number of workers.

The program is traced only, so no worker needs to exist.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

import jaxcompress
from benchmarks.common.expressions import MIN_COMPRESSION_RATE
from benchmarks.common.resnet50_shapes import resnet50_shapes
from jaxcompress import Collective
from jaxcompress.planning.local_work import Update, traced_update


def averaging(expression: str, workers: int) -> Update:
    """The program of `jaxcompress.compress` on the 161 float32 gradients."""
    grads = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in resnet50_shapes().items()
    }
    optimizer = jaxcompress.compress(
        jaxcompress.parse(expression), min_compression_rate=MIN_COMPRESSION_RATE
    )
    return traced_update(optimizer, grads, grads, {"data": workers})


def collectives(update: Update, workers: int) -> list[Collective]:
    """What the program sends; adjacent sums count as one, as XLA combines them."""
    found = []
    for is_sum, run in itertools.groupby(
        update.jaxpr.eqns, lambda one: one.primitive.name == "psum"
    ):
        parts = list(_collectives(list(run), update, workers))
        found += [_together(parts)] if is_sum else parts
    return found


def _collectives(equations: list[Any], update: Update, workers: int) -> Iterator[Collective]:
    part = ClosedJaxpr(update.jaxpr.jaxpr.replace(eqns=equations), update.jaxpr.consts)
    yield from jaxcompress.traffic_of_jaxpr(part, {"data": workers}).collectives


def _together(parts: list[Collective]) -> Collective:
    dtypes = tuple(sorted({dtype for part in parts for dtype in part.dtypes}))
    return parts[0]._replace(dtypes=dtypes, payload_bytes=sum(part.payload_bytes for part in parts))
