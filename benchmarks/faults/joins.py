"""Processes that do not fit together, and replicas that come to differ."""

import functools
from pathlib import Path

from benchmarks.faults.cluster import Cluster
from benchmarks.faults.scenario import Found, Scenario, require, steps_lost
from train.errors import EXIT_CODE_BAD_INPUT, EXIT_CODE_DIVERGED, EXIT_CODE_FAULT

VERIFY_EVERY = 20

# Runs `python -m train`, and flips one bit of a parameter of this process's worker after a step.
FLIP = """
import sys
import jax, numpy as np
import train.loop
from train.__main__ import main

original = train.loop.check_replicas
steps = iter(range(10**6))

def flipped(x):
    own = np.array(x.addressable_shards[0].data)
    own.view(np.uint32).flat[3] ^= 1 << 12
    device = x.addressable_shards[0].device
    return jax.make_array_from_single_device_arrays(
        x.shape, x.sharding, [jax.device_put(own, device)])

def check(state, mesh, step, checkpoints):
    # Between two comparisons, as a cosmic ray would.
    if jax.process_index() == 1 and step >= 40:
        params = jax.tree.map(lambda x: x, state.params)
        params["Dense_0"]["kernel"] = flipped(params["Dense_0"]["kernel"])
        state = state._replace(params=params)
    return original(state, mesh, step, checkpoints)

train.loop.check_replicas = check
code = main(sys.argv[1:])
sys.stderr.flush()
import os
os._exit(code)
"""

# Runs `python -m train`, in process 1 after a change.
CHANGED = """
import os, sys
from train.__main__ import main

if sys.argv[sys.argv.index("--process-id") + 1] == "1":
    {change}
code = main(sys.argv[1:])
sys.stderr.flush()
os._exit(code)
"""
OTHER_DATA = """
    import train.data.registry as registry
    digits = registry.digits()
    digits.train.images[::2] += 1
    registry.DATASETS["digits"] = lambda *arguments: digits
"""
OTHER_VERSION = """
    import importlib.metadata
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: "0.0.1" if name == "optax" else version(name)
"""


def other_option(folder: Path, option: tuple[str, str]) -> Found:
    """Process 1 is started with another setting than process 0."""
    return refused(Cluster(folder, "--epochs", "9", of_each=lambda rank: option * rank), option[0])


def other_environment(folder: Path, name: str, value: str, shown: str) -> Found:
    """Process 1 is started with another setting of JAX than process 0."""
    return refused(
        Cluster(
            folder, "--epochs", "9", environment_of_each=lambda rank: {name: value} if rank else {}
        ),
        shown,
    )


def other_program(folder: Path, change: str, shown: str) -> Found:
    """Process 1 reads other data, or has another version of a package, than process 0."""
    program = ("-c", CHANGED.format(change=change.strip()))
    return refused(Cluster(folder, "--epochs", "9", program=program), shown)


def refused(processes: Cluster, name: str) -> Found:
    """Both end before the first step, and show both values."""
    with processes as cluster:
        cluster.fault_now()
        ended = cluster.wait(60.0)
        require([each.code for each in ended.values()] == [EXIT_CODE_BAD_INPUT] * 2, ended)
        for rank in range(2):
            line, said = cluster.last_line(rank), cluster.errors(rank).read_text()
            require(name.strip("-").replace("-", "_") in line, line)
            require("process 0: " in line and "process 1: " in line, line)
            require("step 5/" not in said, said)
    return Found("both end before the first step, and show both values", None, 0)


def flipped_bit(folder: Path) -> Found:
    """One bit of a parameter of one worker flips."""
    options = ("--epochs", "1000", "--verify-every-steps", str(VERIFY_EVERY))
    options += ("--checkpoint-every-steps", "100")
    with Cluster(folder, *options, program=("-c", FLIP)) as cluster:
        cluster.wait_for_step(20)
        cluster.fault_now()
        ended = cluster.wait(60.0)
        require([each.code for each in ended.values()] == [EXIT_CODE_FAULT] * 2, ended)
        line = cluster.last_line(0)
        require("after step 40 workers must hold the same" in line, line)
        require("Dense_0/kernel" in line and "worker 1 (process 1)" in line, line)
        happened = f"both end, and name worker 1; compared every {VERIFY_EVERY} steps"
        return Found(happened, None, steps_lost(cluster))


def never_finite(folder: Path) -> Found:
    """The loss of one worker is not finite, for ever."""
    options = ("--epochs", "9", "--learning-rate", "1e30", "--max-skipped-steps", "5")
    with Cluster(folder, *options) as cluster:
        cluster.fault_now()
        ended = cluster.wait(60.0)
        require([each.code for each in ended.values()] == [EXIT_CODE_DIVERGED] * 2, ended)
        line = cluster.last_line(0)
        require(line.startswith("diverged: "), line)
    return Found("steps are skipped by all; then all end with code 1", None, None)


SCENARIOS = {
    **{
        f"other_{option[0].strip('-')}": Scenario(
            f"process 1 with {' '.join(option)}",
            "refused before the first step",
            functools.partial(other_option, option=option),
        )
        for option in (("--seed", "1"), ("--learning-rate", "0.2"), ("--dataset", "mnist"))
    },
    **{
        f"other_{name}": Scenario(
            f"process 1 with {name}={value}",
            "refused before the first step",
            functools.partial(other_environment, name=name, value=value, shown=shown),
        )
        for name, value, shown in (
            ("JAX_ENABLE_X64", "1", "jax_enable_x64"),
            ("JAX_DEFAULT_PRNG_IMPL", "rbg", "jax_default_prng_impl"),
            ("JAX_THREEFRY_PARTITIONABLE", "0", "jax_threefry_partitionable"),
            ("XLA_FLAGS", "--xla_cpu_max_isa=SSE4_2", "XLA_FLAGS"),
        )
    },
    **{
        f"other_{name.replace(' ', '_')}": Scenario(
            f"process 1 with other {name}",
            "refused before the first step",
            functools.partial(other_program, change=change, shown=shown),
        )
        for name, change, shown in (
            ("data", OTHER_DATA, "data differs"),
            ("version of optax", OTHER_VERSION, "version of optax"),
        )
    },
    "flipped_bit": Scenario(
        "a bit of a parameter flips on worker 1", "found at the next comparison", flipped_bit
    ),
    "never_finite": Scenario(
        "gradients that are not finite, for ever", "skipped steps, then a clear end", never_finite
    ),
}
