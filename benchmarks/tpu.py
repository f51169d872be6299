"""Chips of a TPU pod to compile for, on a machine that has none: libtpu brings the compiler, and nothing is run."""

import importlib.util
import os

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

# By number of chips; v5e has 16 GiB of memory a chip, and a torus of links.
TOPOLOGIES = {8: "v5e:2x4", 16: "v5e:4x4", 32: "v5e:4x8", 64: "v5e:8x8", 128: "v5e:8x16", 256: "v5e:16x16"}

# By default a chip has one all-gather under way at a time, waits for every all-reduce and all-to-all, and sums that
# stand side by side become one. These let it compute meanwhile, and keep buckets of a MiB apart.
ASYNCHRONOUS = {
    "xla_enable_async_all_reduce": "true",
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": "true",
    "xla_jf_crs_combiner_threshold_in_bytes": str(2**18),
    "xla_max_concurrent_async_all_gathers": "64",
    "xla_tpu_async_collective_fusion_fuse_multiple_collectives": "true",
    "xla_tpu_enable_async_all_to_all": "true",
}


def missing() -> str | None:
    """What to install before TPU programs can be compiled; None if nothing."""
    if importlib.util.find_spec("libtpu"):
        return None
    return (
        "there is no libtpu here, so nothing can be compiled for TPUs. In an environment of its own: "
        f'pip install "jax[tpu]=={jax.__version__}" and what this project needs, pip install -e ".[train]"'
    )


def tpu_mesh(chips: int, axis_name: str = "data") -> Mesh:
    """A mesh of chips that need not be there; call it before anything else asks for TPUs.

    Raises:
      ValueError: if no topology of `TOPOLOGIES` has so many chips.
    """
    if chips not in TOPOLOGIES:
        raise ValueError(f"there are topologies of {sorted(TOPOLOGIES)} chips; got {chips}.")
    # Ask no cloud which chips this machine has, and let other processes compile too.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    topology = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGIES[chips])
    return Mesh(np.array(topology.devices), (axis_name,), axis_types=(AxisType.Auto,))
