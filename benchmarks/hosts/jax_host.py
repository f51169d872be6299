"""One host with JAX: joining the others, and waiting for all of them."""

import platform
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import serialize_executable
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress._compat import coordination_client

CHUNK_BYTES = 2**20  # the coordination service takes messages of 4 MB
TIMEOUT_MS = 1_800_000


def join(rank: int, workers: int, address: str) -> Mesh:
    """Connects this process to the others; one worker per host."""
    jaxcompress.initialize_processes(f"{address}:29400", workers, rank)
    return jaxcompress.data_mesh()


def compiled(lowered: jax.stages.Lowered, rank: int, mesh: Mesh) -> jax.stages.Compiled:
    """The program, compiled by the first host, which sends it to the others: once in a process.

    All have the same processor, and many hosts on few cores would compile it for minutes.
    """
    client = coordination_client()
    if rank:
        chunks = int(client.blocking_key_value_get("program", TIMEOUT_MS))
        names = [f"part {i}" for i in range(chunks)]
        saved = b"".join(client.blocking_key_value_get_bytes(name, TIMEOUT_MS) for name in names)
        return serialize_executable.deserialize_and_load(
            saved, lowered.in_tree, lowered.out_tree, execution_devices=list(mesh.devices.flat)
        )
    program = lowered.compile()
    saved, _, _ = serialize_executable.serialize(program)
    chunks = [saved[i : i + CHUNK_BYTES] for i in range(0, len(saved), CHUNK_BYTES)]
    for i, chunk in enumerate(chunks):
        client.key_value_set_bytes(f"part {i}", chunk)
    client.key_value_set("program", str(len(chunks)))
    return program


def versions() -> dict[str, str]:
    """The versions of JAX and Python in this process."""
    return {"version": f"jax {jax.__version__}", "python": platform.python_version()}


def barrier(mesh: Mesh) -> Callable[[], None]:
    """Waits for all hosts, by summing one number."""
    total = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()
        )
    )
    ones = jaxcompress.shard_batch(np.ones(1, np.float32), mesh)
    return lambda: jax.block_until_ready(total(ones))
