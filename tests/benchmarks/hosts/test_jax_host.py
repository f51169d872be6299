"""A benchmark's program is compiled once for all hosts."""

from subprocesses import free_port, joined, lines_of, run_together

PROGRAM = """
import jax, numpy as np
from jax.sharding import PartitionSpec as P
from benchmarks.hosts import jax_host

jax_host.CHUNK_BYTES = 1000  # so there are several

mesh, rank = jaxcompress.data_mesh(), jax.process_index()
if rank:
    jax.stages.Lowered.compile = None  # the first host's program is taken
step = jax.jit(
    jax.shard_map(
        lambda x, state: (jax.lax.psum(x, "data"), {"steps": state["steps"] + 1}),
        mesh=mesh, in_specs=P("data"), out_specs=(P(), P("data")),
    ),
    donate_argnums=1,
)
x = jaxcompress.shard_batch(np.full(1, rank + 1, np.float32), mesh)
state = {"steps": jaxcompress.shard_batch(np.full(1, rank, np.int32), mesh)}
program = jax_host.compiled(step.lower(x, state), rank, mesh)
for _ in range(2):
    total, state = program(x, state)
(steps,) = (int(shard.data[0]) for shard in state["steps"].addressable_shards)
print(rank, float(total.addressable_data(0)[0]), steps, "all-reduce" in program.as_text())
"""


def test_hosts_run_the_program_of_the_first_host():
    port = free_port()
    programs = [joined(PROGRAM, rank, 2, port) for rank in range(2)]
    assert [lines[-1] for lines in lines_of(run_together(programs))] == [
        "0 3.0 2 True",
        "1 3.0 3 True",
    ]
