"""TPU chips to compile for, on a machine without any.

libtpu contains the compiler, and nothing runs.
"""

import importlib.util
import os

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

# By number of chips. A v5e chip has 16 GiB of memory, and links in a torus.
TOPOLOGIES = {
    8: "v5e:2x4",
    16: "v5e:4x4",
    32: "v5e:4x8",
    64: "v5e:8x8",
    128: "v5e:8x16",
    256: "v5e:16x16",
}

# By default, a chip runs one all-gather at a time and waits for every all-reduce and all-to-all.
# XLA also combines adjacent sums into one. With these flags it computes meanwhile, and buckets of a
# MiB stay separate.
ASYNCHRONOUS = {
    "xla_enable_async_all_reduce": "true",
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": "true",
    "xla_jf_crs_combiner_threshold_in_bytes": str(2**18),
    "xla_max_concurrent_async_all_gathers": "64",
    "xla_tpu_async_collective_fusion_fuse_multiple_collectives": "true",
    "xla_tpu_enable_async_all_to_all": "true",
}


def missing() -> str | None:
    """What to install before compiling TPU programs; None if nothing."""
    if importlib.util.find_spec("libtpu"):
        return None
    return (
        "TPU programs need libtpu. In its own environment: "
        f'pip install "jax[tpu]=={jax.__version__}" and this project, pip install -e'
        ' ".[train]"'
    )


def tpu_mesh(chips: int, axis_name: str = "data") -> Mesh:
    """A mesh of TPU chips that need not exist; call it before any other use of TPUs.

    Raises:
      ValueError: `TOPOLOGIES` has no topology with this number of chips.
    """
    if chips not in TOPOLOGIES:
        raise ValueError(f"chips must be one of {sorted(TOPOLOGIES)}; got {chips}.")
    # Do not ask the cloud for chips, and let other processes compile too.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    topology = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGIES[chips])
    return Mesh(np.array(topology.devices), (axis_name,), axis_types=(AxisType.Auto,))
