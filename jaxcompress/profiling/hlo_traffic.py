"""Counts bytes in the compiled program: what the backend moves, after fusions and conversions."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jax.sharding import AbstractMesh, Mesh

from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.profiling.collective import Branch, Collective, Traffic, largest, repeated
from jaxcompress.profiling.hlo_text import (
    OPERATIONS,
    Computation,
    Instruction,
    arrays,
    is_part,
    read_hlo,
)
from jaxcompress.profiling.replica_groups import crossed_axes, replica_groups

# A mesh, or the size of each of its axes by name, in order.
MeshShape = Mesh | AbstractMesh | Mapping[str, int]


class _Program(NamedTuple):
    computations: dict[str, Computation]
    partitions: int
    mesh: Mapping[str, int]  # the size of each axis; empty if the axes are unknown
    branch: Branch
    rounds: int | None  # of a loop whose length the program does not tell


def traffic_of_hlo(
    text: str,
    branch: Branch = largest,
    mesh: MeshShape | None = None,
    rounds: int | None = None,
) -> Traffic:
    """The collectives of a compiled program.

    It follows calls, fusions, asynchronous pairs (counted once) and loops of known length from the
    entry. The payload is the size of the operands. A backend may merge, move or drop collectives
    and change dtypes: XLA on CPUs sums bfloat16 as float32.

    Args:
      text: The text of ``jitted.lower(*args).compile().as_text()``.
      branch: Which branch of a conditional counts: a function of one `Traffic` per branch. By
        default the largest. A loop that runs at most once counts as one.
      mesh: The mesh of the program, or its shape, such as ``{"data": 2, "fsdp": 8}``. It gives each
        collective its `axes`, for `Traffic.over`. Partitions are numbered by their row-major
        positions in the mesh, as JAX does for a step on one mesh.
      rounds: How often a loop of unknown length runs. Without it, such a loop must not hold
        collectives.

    Returns:
      One `Collective` for each operation that a step executes.

    Raises:
      ValueError: if a loop of unknown length holds a collective and `rounds` is not given, if the
        notation is unknown, or if the mesh and the program differ in size.

    Example:
      >>> text = '''HloModule step, num_partitions=4
      ... ENTRY %main (x: u16[10]) -> u16[40] {
      ...   %x = u16[10]{0} parameter(0)
      ...   ROOT %y = u16[40]{0} all-gather(%x), replica_groups=[1,4]<=[4], dimensions={0}
      ... }'''
      >>> (gather,) = traffic_of_hlo(text).collectives
      >>> gather.operation, gather.payload_bytes, gather.group
      ('all-gather', 20, 4)
    """
    partitions = math.prod(
        int(n)
        for n in re.findall(r"\b(?:num_partitions|replica_count)=(\d+)", text.split("\n", 1)[0])
    )
    if rounds is not None:
        check_integer("rounds", rounds, 0, "the rounds of each loop of unknown length")
    computations, entry = read_hlo(text)
    shape = _shape(mesh, partitions)
    program = _Program(computations, partitions, shape, branch, rounds)
    return Traffic(tuple(_walk(program, entry)), tuple(shape))


def _shape(mesh: MeshShape | None, partitions: int) -> Mapping[str, int]:
    if mesh is None:
        return {}
    if not isinstance(mesh, Mapping | Mesh | AbstractMesh):
        raise ValueError(
            f'mesh is a mesh, or its shape as in {{"data": 2, "fsdp": 4}}; got {mesh!r}.'
        )
    shape = mesh if isinstance(mesh, Mapping) else mesh.shape
    if math.prod(shape.values()) != partitions:
        raise ValueError(
            f"mesh is that of the program, which has {partitions} partitions; got {dict(shape)}."
        )
    return shape


def _walk(program: _Program, name: str) -> Iterator[Collective]:
    computation = program.computations[name]
    for own_name, instruction in computation.items():
        opcode = instruction.opcode
        # The second half of an asynchronous pair names the same computation again.
        if opcode.endswith(("-done", "-update")) or _started_elsewhere(own_name, computation):
            continue
        if opcode.removesuffix("-start") in OPERATIONS:
            yield _collective(program, instruction, computation)
            continue
        if opcode == "conditional":
            names = _branches(instruction.attributes)
            branches = [Traffic(tuple(_walk(program, each))) for each in names]
            if any(each.collectives for each in branches):
                yield from program.branch(branches).collectives
            continue
        if _at_most_one_round(program, instruction):
            rounds = [Traffic(()), Traffic(tuple(_walk(program, _called(instruction, "body"))))]
            if rounds[1].collectives:
                yield from program.branch(rounds).collectives
            continue
        for called in instruction.called:
            if inner := list(_walk(program, called)):
                rounds = _rounds(instruction, program.rounds)
                # The condition of a loop also runs when it ends the loop.
                ends = instruction.opcode == "while" and called == _called(instruction, "condition")
                yield from repeated(inner, rounds + ends)


def _started_elsewhere(name: str, computation: Computation) -> bool:
    """Whether it continues a collective that started in another computation."""
    if not is_part(computation[name]):
        return False
    starts = [one for one in computation.values() if '"AsyncCollectiveStart"' in one.attributes]
    return not any(name in one.operands for one in starts)


def _branches(attributes: str) -> list[str]:
    """The computations of a conditional in the order of their index; ``false`` is 0."""
    if found := re.search(r"branch_computations=\{([^}]*)\}", attributes):
        return re.findall(r"[\w.-]+", found[1])
    return [
        re.findall(rf"{which}_computation=%?([\w.-]+)", attributes)[0]
        for which in ("false", "true")
    ]


def _called(loop: Instruction, part: str) -> str:
    """The computation that is the ``condition`` or the ``body`` of a loop."""
    return re.findall(rf"\b{part}=%?([\w.-]+)", loop.attributes)[0]


def _at_most_one_round(program: _Program, instruction: Instruction) -> bool:
    """Whether it is a loop that goes on by an entry of its state, which its body makes false."""
    if instruction.opcode != "while":
        return False
    *_, goes_on = program.computations[_called(instruction, "condition")].values()
    if goes_on.opcode != "get-tuple-element":
        return False
    (index,) = re.findall(r"\bindex=(\d+)", goes_on.attributes)
    body = program.computations[_called(instruction, "body")]
    *_, state = body.values()
    if state.opcode != "tuple":
        return False
    entry = body[state.operands[int(index)]]
    while entry.opcode == "copy":
        entry = body[entry.operands[0]]
    return entry.opcode == "constant" and entry.operands == ["false"]


def _rounds(instruction: Instruction, unknown: int | None) -> int:
    if instruction.opcode != "while":
        return 1
    if found := re.search(r"known_trip_count\W+n\W+(\d+)", instruction.attributes):
        return int(found[1])
    if unknown is None:
        raise ValueError(
            "a while loop whose number of rounds is not known holds collectives; say by rounds=…"
            " how often such loops run."
        )
    return unknown


def _collective(program: _Program, instruction: Instruction, siblings: Computation) -> Collective:
    operation = instruction.opcode.removesuffix("-start")
    # The other operands of a ragged exchange are offsets, which are not sent.
    operands = instruction.operands[: 1 if operation.startswith("ragged") else None]
    sent = [array for name in operands for array in arrays(siblings[name].shape)]
    groups = replica_groups(instruction.attributes, program.partitions)
    return Collective(
        operation.removeprefix("ragged-"),
        tuple(sorted({dtype for dtype, _ in sent})),
        sum(size for _, size in sent),
        max((len(set(group)) for group in groups), default=1),
        axes=crossed_axes(groups, program.mesh),
    )
