"""Checks that arrays which all workers hold are the same, bit for bit, on all of them."""

import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from jaxcompress.distributed.specs import is_per_worker
from jaxcompress.distributed.virtual import AnyMesh, VirtualMesh
from jaxcompress.ops.trees import path_text


def assert_replicas_equal(tree: Any, mesh: AnyMesh) -> None:
    """Compares the copies of every array of `tree` that the devices of `mesh` hold.

    Copies differ if processes began with other parameters, if a processor rounds differently from
    another, or if a bit of a memory has flipped. Training then goes on silently, with workers that
    have different models.

    The host reads each copy and takes its CRC-32, which always finds a single changed bit; 4 bytes
    for each array and device are gathered. Nothing is compiled, and devices need no memory.

    Every process must call it at the same point. A `VirtualMesh` has one copy, and nothing to do.

    Args:
      tree: A tree of arrays: the parameters, or a state. `PerWorker` parts, which differ by
        definition, are left out. Of arrays that `mesh` shards, the copies of each shard are
        compared. Arrays that are not on the mesh, such as those of NumPy, are compared between
        processes.
      mesh: The mesh.

    Raises:
      ValueError: in every process, if copies differ; it names the first such array, and the workers
        whose copy is not that of most.

    Example:
      >>> assert_replicas_equal({"kernel": jnp.ones((3, 2))}, jax.make_mesh((1,), ("data",)))
    """
    if isinstance(mesh, VirtualMesh) or mesh.size == 1:
        return
    shared = jax.tree.map(
        lambda node: None if is_per_worker(node) else node, tree, is_leaf=is_per_worker
    )
    arrays = jax.tree_util.tree_leaves_with_path(shared)
    if not arrays:
        return
    checksums = _checksums([x for _, x in arrays], mesh)
    for (path, x), of_devices in zip(arrays, checksums, strict=True):
        if differing := _differing(_shards(x, mesh), of_devices.tolist()):
            names = ", ".join(_name(mesh, place) for place in differing)
            raise ValueError(
                f"workers must hold the same {path_text(path)!r}, bit for bit; {names} differs from"
                " the others. Start all with one seed, or from one checkpoint, on processors of one"
                " kind."
            )


def _checksums(arrays: list[Any], mesh: jax.sharding.Mesh) -> np.ndarray:
    """uint32[arrays, devices of the mesh], in every process."""
    ranks = [device.process_index for device in mesh.devices.flat]
    local = [d for d in mesh.devices.flat if d.process_index == jax.process_index()]
    parts = [part for x in arrays for part in _copies(x, local, mesh)]
    with ThreadPoolExecutor() as threads:  # zlib runs without the interpreter's lock
        own = np.array(list(threads.map(_checksum, parts)), np.uint32)
    gathered = np.asarray(multihost_utils.process_allgather(own.reshape(len(arrays), len(local))))
    of_process = gathered.reshape(-1, *gathered.shape[-2:])
    columns, counts = [], Counter()
    for rank in ranks:  # devices of a process are in the order of the mesh
        columns.append(of_process[rank, :, counts[rank]])
        counts[rank] += 1
    return np.stack(columns, axis=1)


def _copies(x: Any, local: list[Any], mesh: jax.sharding.Mesh) -> list[Any]:
    """What each of these devices holds of `x`; `x` itself if it is not on the mesh."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if not _is_on(mesh, x):
        return [x] * len(local)
    held = {shard.device: shard.data for shard in x.addressable_shards}
    return [held[device] for device in local]


def _checksum(x: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)


def _shards(x: Any, mesh: jax.sharding.Mesh) -> list[str]:
    """Which part of `x` each device of the mesh holds, as text."""
    if not _is_on(mesh, x):
        return [""] * mesh.size
    index = x.sharding.devices_indices_map(x.shape)
    return [str(index[device]) for device in mesh.devices.flat]


def _differing(shards: list[str], checksums: list[int]) -> list[int]:
    """The positions whose checksum is not that of most copies of the same shard."""
    copies = list(zip(shards, checksums, strict=True))
    counts: dict[str, Counter[int]] = {shard: Counter() for shard in shards}
    for shard, checksum in copies:
        counts[shard][checksum] += 1
    usual = {shard: counted.most_common(1)[0][0] for shard, counted in counts.items()}
    return [place for place, (shard, checksum) in enumerate(copies) if checksum != usual[shard]]


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


def _is_on(mesh: jax.sharding.Mesh, x: Any) -> bool:
    """Whether the devices of `mesh` hold `x`, on this mesh or on another of the same devices."""
    return isinstance(x, jax.Array) and x.sharding.device_set == set(mesh.devices.flat)
