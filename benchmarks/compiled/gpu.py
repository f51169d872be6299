"""GPUs to compile for, on a machine without any.

JAX's CUDA plugin contains the compiler, and nothing runs. The compiler is told what the card is in
a text of XLA's `GpuTargetConfigProto`; the numbers are those that NVIDIA publishes. Without a card
kernels cannot be timed, so autotuning is off and some kernels differ from those of a real run.
Collectives, fusions and memory do not depend on it.
"""

import importlib.util
import os
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

# XLA would time kernels, on a card.
NO_AUTOTUNING = {"xla_gpu_autotune_level": 0}

# Collectives start while the backward pass computes, and a bucket's gathers are not combined with
# the next bucket's. The scheduler starts a message as early as it takes, so it is told by
# `expect_a_slow_network` that it takes long. Otherwise it takes small messages for free.
ASYNCHRONOUS = {
    "xla_gpu_enable_latency_hiding_scheduler": True,
    "xla_gpu_enable_analytical_sol_latency_estimator": True,
    "xla_gpu_all_gather_combine_threshold_bytes": 0,
    "xla_gpu_all_reduce_combine_threshold_bytes": 0,
    "xla_gpu_reduce_scatter_combine_threshold_bytes": 0,
}
# Every GPU is a host by itself, with a link of one gigabyte a second, which XLA calls gbps.
SLOW_NETWORK = (
    "--xla_gpu_analytical_latency_estimator_options=nccl_op_launch_us=55,nic_speed_gbps=1,"
    "chunk_prep_us=1,rtt_us=500,gpus_per_node=1,chunk_size_bytes=1048576"
)

GPUS_OF_A_HOST = 8
CUDA, CUDNN = (12, 8), (9, 10)


class Card(NamedTuple):
    """The numbers of a card that decide on fusions and kernels."""

    name: str
    compute_capability: tuple[int, int]
    processors: int  # streaming multiprocessors
    memory: int  # bytes
    bandwidth: int  # bytes per second
    cache: int  # bytes of the second level
    clock: float  # GHz


# Of NVIDIA's data sheets and tuning guides.
CARDS = {
    "h100": Card("NVIDIA H100 80GB HBM3", (9, 0), 132, 80 * 2**30, 3_350 * 10**9, 50 * 2**20, 1.98),
    "h200": Card("NVIDIA H200", (9, 0), 132, 141 * 10**9, 4_800 * 10**9, 50 * 2**20, 1.98),
    "b200": Card("NVIDIA B200", (10, 0), 148, 180 * 10**9, 8_000 * 10**9, 126 * 2**20, 1.965),
}


def missing() -> str | None:
    """What is needed before GPU programs can be compiled; None if nothing."""
    if not any(map(importlib.util.find_spec, ("jax_cuda12_plugin", "jax_cuda13_plugin"))):
        return (
            "GPU programs need JAX's CUDA plugin. In its own environment: "
            f'pip install "jax[cuda12]=={jax.__version__}" and this project, pip install -e'
            ' ".[train]"'
        )
    if jax.config.jax_platforms != "cpu":
        return "Compiling for GPUs without one needs JAX_PLATFORMS=cpu, before JAX starts."
    return None


def expect_a_slow_network() -> None:
    """Tells XLA's scheduler, where `ASYNCHRONOUS` asks it, how slow messages are.

    XLA reads it from the environment only, when the backend starts.
    """
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {SLOW_NETWORK}"


def gpu_mesh(card: str, workers: int, axis_name: str = "data") -> Mesh:
    """A mesh of GPUs that need not exist, eight to a host.

    Raises:
      ValueError: `CARDS` has no such card, or the last host would not be full.
    """
    if card not in CARDS:
        raise ValueError(f"card must be one of {sorted(CARDS)}; got {card!r}.")
    if workers < 1 or (workers > GPUS_OF_A_HOST and workers % GPUS_OF_A_HOST):
        raise ValueError(
            f"workers must be 1 to {GPUS_OF_A_HOST}, or a multiple of it; got {workers}."
        )
    of_a_host = min(workers, GPUS_OF_A_HOST)
    topology = topologies.get_topology_desc(
        platform="cuda",  # "gpu" would look for a card
        target_config=target_config(CARDS[card]),
        topology=f"1x{workers // of_a_host}x{of_a_host}",
    )
    return Mesh(np.array(topology.devices), (axis_name,), axis_types=(AxisType.Auto,))


def target_config(card: Card) -> str:
    """The text that describes a card to XLA.

    The limits of threads, registers and shared memory are those of compute capability 9.0 and 10.0.
    """
    major, minor = card.compute_capability
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: 2048
  shared_memory_per_block: {48 * 2**10}
  shared_memory_per_block_optin: {227 * 2**10}
  shared_memory_per_core: {228 * 2**10}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  core_count: {card.processors}
  fpus_per_core: 128
  memory_bandwidth: {card.bandwidth}
  device_memory_size: {card.memory}
  l2_cache_size: {card.cache}
  clock_rate_ghz: {card.clock}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: {CUDNN[0]} minor: {CUDNN[1]} }}
runtime_version {{ major: {CUDA[0]} minor: {CUDA[1]} }}
device_description_str: "{card.name}"
"""
