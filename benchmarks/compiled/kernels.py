"""What a GPU launches in one step, counted in its compiled program."""

from jaxcompress.profiling.hlo_text import Computation, Instruction, read_hlo

# A launch takes 2 to 5 microseconds, however small the work.
LAUNCHED = {"fusion", "custom-call", "copy", "copy-start", "sort", "while", "conditional"}


def kernels(text: str) -> int:
    """Fusions, library calls, copies and loops of the entry computation.

    A loop counts once, though each of its turns launches its body's kernels.
    """
    return sum(is_kernel(one) for one in _entry(text))


def loops(text: str) -> int:
    """Loops of the entry computation: each turn waits for the processor."""
    return sum(one.opcode == "while" for one in _entry(text))


def is_kernel(instruction: Instruction) -> bool:
    """Whether an instruction of the entry computation is a launch of its own."""
    return instruction.opcode in LAUNCHED


def _entry(text: str) -> list[Instruction]:
    """The instructions of the entry computation, and of those that it calls as they are."""
    computations, entry = read_hlo(text)
    return _flat(computations, entry)


def _flat(computations: dict[str, Computation], name: str) -> list[Instruction]:
    found = []
    for one in computations[name].values():
        called = one.called if one.opcode == "call" else []
        found += [one, *(each for inner in called for each in _flat(computations, inner))]
    return found
