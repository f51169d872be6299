"""Checks that arrays which all workers hold are the same, bit for bit, on all of them."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxcompress.base import PerWorker
from jaxcompress.distributed.virtual import AnyMesh, VirtualMesh
from jaxcompress.ops.trees import path_text


def assert_replicas_equal(tree: Any, mesh: AnyMesh) -> None:
    """Compares the copies of every array of `tree` that the devices of `mesh` hold.

    Each device sums the bits of its copy, ``Σ (2 i + 1) · bits_i mod 2³²``, in one pass; a change
    of one entry always changes this sum. Then 4 bytes per array and device are gathered. Copies
    differ if processes began with other parameters, if a processor rounds otherwise than another,
    or if a bit of a memory has flipped. Training then goes on silently, with workers that have
    different models.

    Every process must call it at the same point. A `VirtualMesh` has one copy, and nothing to do.

    Args:
      tree: A tree of arrays: the parameters, or a state. `PerWorker` parts, which differ by
        definition, are left out. Of arrays that `mesh` shards, the copies of each shard are
        compared. Arrays of one process, such as those of NumPy, are placed on the mesh first.
      mesh: The mesh.

    Raises:
      ValueError: in every process, if copies differ; it names the first such array, and the workers
        whose copy is not that of most.

    Example:
      >>> assert_replicas_equal({"kernel": jnp.ones((3, 2))}, jax.make_mesh((1,), ("data",)))
    """
    if isinstance(mesh, VirtualMesh) or mesh.size == 1:
        return
    replicated = jax.tree.map(
        lambda node: None if _is_per_worker(node) else node, tree, is_leaf=_is_per_worker
    )
    arrays = {
        path_text(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(replicated)
    }
    if not arrays:
        return
    placed = [_on(mesh, x) for x in arrays.values()]
    specs = tuple(
        sharding.spec for x in placed if isinstance(sharding := x.sharding, NamedSharding)
    )
    table = np.asarray(_checksums_of(mesh, specs)(*placed))
    for name, x, column in zip(arrays, placed, table.T, strict=True):
        shards = x.sharding.devices_indices_map(x.shape)
        if differing := _differing([str(shards[d]) for d in mesh.devices.flat], column):
            names = ", ".join(_name(mesh, place) for place in differing)
            raise ValueError(
                f"workers must hold the same {name!r}, bit for bit, and {names} does not hold what"
                " most others do. Start all with one seed, or from one checkpoint, on processors of"
                " one kind."
            )


@functools.cache
def _checksums_of(mesh: jax.sharding.Mesh, specs: tuple[P, ...]):
    """Jitted: arrays placed by `specs` -> uint32[devices, arrays], on every device."""

    def of_device(*arrays):
        return jnp.stack([_checksum(x) for x in arrays])[None]

    rows = jax.shard_map(
        of_device, mesh=mesh, in_specs=specs, out_specs=P(mesh.axis_names), check_vma=False
    )
    return jax.jit(rows, out_shardings=NamedSharding(mesh, P()))


def _checksum(x: jax.Array) -> jax.Array:
    """uint32: the sum of the bits of all entries, each times an odd number of its own."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = jnp.stack([x.real, x.imag])
    if x.dtype == jnp.bool_ or x.dtype.itemsize < 1:
        x = x.astype(jnp.uint8)
    width = min(8 * x.dtype.itemsize, 32)  # wider entries become several words
    words = jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{width}")).ravel().astype(jnp.uint32)
    odd = 2 * jnp.arange(words.size, dtype=jnp.uint32) + 1
    return jnp.sum(words * odd, dtype=jnp.uint32)


def _differing(shards: Sequence[str], checksums: np.ndarray) -> list[int]:
    """The positions whose checksum is not that of most copies of the same shard."""
    counts: dict[str, Counter] = {}
    for shard, checksum in zip(shards, checksums.tolist(), strict=True):
        counts.setdefault(shard, Counter())[checksum] += 1
    usual = {shard: counted.most_common(1)[0][0] for shard, counted in counts.items()}
    return [
        place
        for place, (shard, checksum) in enumerate(zip(shards, checksums.tolist(), strict=True))
        if checksum != usual[shard]
    ]


def _name(mesh: jax.sharding.Mesh, place: int) -> str:
    """A device of the mesh, in words."""
    process = mesh.devices.flat[place].process_index
    if len(mesh.axis_names) == 1:
        return f"worker {place} (process {process})"
    position = np.unravel_index(place, mesh.devices.shape)
    axes = ", ".join(
        f"{name} {index}" for name, index in zip(mesh.axis_names, position, strict=True)
    )
    return f"the device at {axes} (process {process})"


def _on(mesh: jax.sharding.Mesh, x: Any) -> jax.Array:
    """`x` as it is on `mesh`, or else this process's value of it on every device of the process."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    sharding = getattr(x, "sharding", None)
    if isinstance(sharding, NamedSharding) and sharding.mesh == mesh:
        return x
    host = np.asarray(x)
    everywhere = NamedSharding(mesh, P())
    return jax.make_array_from_callback(host.shape, everywhere, lambda index: host[index])


def _is_per_worker(node: Any) -> bool:
    return isinstance(node, PerWorker)
