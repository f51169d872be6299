"""What else than a program's own settings changes its numbers: JAX's settings and versions."""

import importlib.metadata
import os

import jax

# Settings of JAX that change random numbers, dtypes, rounding, or the program that is compiled.
SETTINGS = (
    "jax_allow_f16_reductions",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_disable_jit",
    "jax_disable_most_optimizations",
    "jax_enable_custom_prng",
    "jax_enable_x64",
    "jax_exec_time_optimization_effort",
    "jax_high_dynamic_range_gumbel",
    "jax_legacy_prng_key",
    "jax_numpy_dtype_promotion",
    "jax_optimization_level",
    "jax_random_seed_offset",
    "jax_softmax_custom_jvp",
    "jax_threefry_gpu_kernel_lowering",
    "jax_threefry_partitionable",
    "jax_use_direct_linearize",
    "jax_use_shardy_partitioner",
)
PACKAGES = ("jax", "jaxlib", "jaxcompress", "optax", "flax")
# Flags of XLA that only say what it prints, or how many devices a process makes.
_WITHOUT_EFFECT = ("--xla_dump", "--xla_force_host_platform_device_count", "--xla_log")


def numeric_settings() -> dict[str, str]:
    """What changes the numbers of a training beside its own settings: name -> text.

    Settings of JAX, flags of XLA, and the versions of jax, jaxlib, jaxcompress, optax and flax. All
    processes of a training need the same (`assert_equal_across_processes` and `init_state` compare
    them). Save them in checkpoints to find out why a resumed run differs.
    """
    settings = {
        name: repr(getattr(jax.config, name)) for name in SETTINGS if hasattr(jax.config, name)
    }
    versions = {f"version of {name}": _version(name) for name in PACKAGES}
    return settings | versions | {"XLA_FLAGS": _flags("XLA_FLAGS")}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _flags(variable: str) -> str:
    """The flags of an environment variable, in order, that may change numbers."""
    flags = os.environ.get(variable, "").split()
    return " ".join(sorted(flag for flag in flags if not flag.startswith(_WITHOUT_EFFECT)))
