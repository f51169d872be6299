"""Profiles dense steps in JAX of the task that is its argument."""

import sys
from collections import Counter
from collections.abc import Callable

import jax

import jaxcompress
from benchmarks.common.profiled_events import profiled_events
from benchmarks.common.training_parts import training_parts
from benchmarks.hosts.jax_host import versions
from benchmarks.step_profile.operation_kinds import (
    CONVOLUTIONS,
    COPIES,
    OTHERS,
    PRODUCTS,
    STEPS,
    report,
    use_one_core,
)
from benchmarks.time_to_accuracy.tasks import TASKS, config_of
from jaxcompress.distributed.freed_memory import take_free_blocks
from jaxcompress.profiling.hlo_text import Computation, Instruction, read_hlo
from train.optimizer import make_chain
from train.task import make_loss

MOVED = {
    *("copy", "bitcast", "reshape", "slice", "concatenate", "pad", "reverse", "broadcast"),
    *("parameter", "constant", "tuple", "get-tuple-element"),
}
# The instructions that these call have events of their own.
CALLERS = {"while", "conditional", "call"}


def main(task: str) -> None:
    """Trains on one core, with the rows of one of two hosts."""
    use_one_core()
    config, mesh = config_of(TASKS[task]), jaxcompress.data_mesh(1)
    parts = training_parts(config, TASKS[task].most_steps, 0, 2)
    average = jaxcompress.compress(jaxcompress.dense())
    optimizer = make_chain(config, average, parts.schedule, "data")
    params, extra = jaxcompress.replicate((parts.params, parts.extra), mesh)
    state = jaxcompress.init_state(optimizer, params, mesh)
    batch = jaxcompress.shard_batch(parts.example, mesh)
    step = jaxcompress.make_train_step(make_loss(parts.model), optimizer, mesh)
    program = step.lower(params, state, extra, batch).compile()
    take_free_blocks()
    held = [params, state, extra]

    def take() -> None:
        *held[:], metrics = program(*held, batch)
        jax.block_until_ready((held, metrics))

    for _ in range(STEPS):
        take()
    report(take, profiled(take, program.as_text()), versions()["version"])


def profiled(step: Callable[[], None], program: str) -> Counter[str]:
    """Kind to the milliseconds of its instructions in `STEPS` steps."""
    kinds, found = kinds_of(program), Counter()

    def steps() -> None:
        for _ in range(STEPS):
            step()

    for name, seconds in profiled_events(steps):
        if name in kinds:
            found[kinds[name]] += 1000 * seconds
    if not found:
        raise RuntimeError("JAX's profiler has timed no instruction of the program.")
    return found


def kinds_of(program: str) -> dict[str, str]:
    """The kind of each instruction of a compiled program."""
    computations, _ = read_hlo(program)
    return {
        name: _kind(instruction, computations)
        for instructions in computations.values()
        for name, instruction in instructions.items()
        if instruction.opcode not in CALLERS
    }


def _kind(instruction: Instruction, computations: dict[str, Computation]) -> str:
    inside = [
        each.opcode for called in instruction.called for each in computations[called].values()
    ]
    opcodes = set(inside) if instruction.opcode == "fusion" else {instruction.opcode}
    if "convolution" in opcodes:
        return CONVOLUTIONS
    if "dot" in opcodes:
        return PRODUCTS
    return COPIES if "transpose" in opcodes or opcodes <= MOVED else OTHERS


if __name__ == "__main__":
    main(sys.argv[1])
