"""The communication of a program alone sends what the program sends."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.network.bare_collectives import bare_collectives

WORKERS = 4


def averaging(expression):
    """A jitted average of one array over all workers, and an argument for it."""
    compressor, mesh = jaxcompress.parse(expression), jaxcompress.data_mesh(WORKERS)
    x = jaxcompress.shard_batch(np.ones((WORKERS, 64, 96), np.float32), mesh)

    def local(x):
        state = compressor.init(jax.random.key(0), x[0])
        reduced, _ = compressor.reduce(jax.random.key(1), x[0], state, "data")
        return reduced.mean

    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P("data"), out_specs=P())), x, mesh


@pytest.mark.parametrize(
    "expression", ["dense()", "top_k(0.01)", "power_sgd(2)", "qsgd(4)", "sign()"]
)
def test_the_same_bytes_by_the_same_operations(expression):
    step, x, mesh = averaging(expression)
    traced = step.trace(x)
    bare, zeros = bare_collectives(traced, mesh)
    whole, alone = (
        jaxcompress.traffic_of_jaxpr(each.jaxpr) for each in (traced, bare.trace(zeros))
    )
    assert alone == whole
    assert whole.wire_bytes > 0


def test_it_runs_on_zeros():
    step, x, mesh = averaging("power_sgd(2)")
    bare, zeros = bare_collectives(step.trace(x), mesh)
    assert all(not np.any(result) for result in jax.tree.leaves(bare(zeros)))


def test_collectives_inside_calls_are_found():
    mesh = jaxcompress.data_mesh(WORKERS)
    inner = jax.jit(lambda x: jax.lax.psum(x, "data"))
    step = jax.jit(
        jax.shard_map(
            lambda x: inner(x) + inner(2 * x), mesh=mesh, in_specs=P("data"), out_specs=P()
        )
    )
    _, zeros = bare_collectives(step.trace(np.ones(WORKERS, np.float32)), mesh)
    assert [x.shape for x in jax.tree.leaves(zeros)] == [(WORKERS, 1), (WORKERS, 1)]
