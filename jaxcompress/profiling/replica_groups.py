"""Which partitions exchange data in a collective of a compiled program, and along which axes."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

Groups = Sequence[Sequence[int]]


def replica_groups(attributes: str, partitions: int) -> Groups:
    """The partitions of each group, from any of XLA's notations.

    The groups of a permute are its pairs of a source and a target.

    Raises:
      ValueError: if the notation is unknown.
    """
    # {{0,1},{2,3}}, and {} for all partitions
    if found := re.search(r"source_target_pairs=\{((?:\{[\d,]*\},?)*)\}", attributes):
        return _lists(found[1])
    if found := re.search(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}", attributes):
        return _lists(found[1]) or [range(partitions)]
    # [2,4]<=[8]: two groups of four
    if found := re.search(r"replica_groups=\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)", attributes):
        return _transposed(found[2]).reshape(-1, _integers(found[1])[-1]).tolist()
    # mesh['node'=2,'gpu'=4] {'gpu'}, also with device_ids=(…) before the axes
    if found := re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? ?\{([^}]*)\}", attributes
    ):
        return _of_mesh(found[1], found[2], found[3])
    raise ValueError(
        f"these replica groups are written in a way that is not known here: {attributes[:200]}"
    )


def crossed_axes(groups: Groups, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of `mesh` along which the members of a group differ.

    Partitions are numbered by their row-major positions in the mesh; an empty mesh has no axes.
    """
    crossed: set[str] = set()
    for group in groups if mesh else ():
        positions = np.unravel_index(np.asarray(group), tuple(mesh.values()))
        crossed |= {name for name, along in zip(mesh, positions, strict=True) if np.ptp(along)}
    return tuple(name for name in mesh if name in crossed)


def _of_mesh(axes: str, device_ids: str | None, chosen: str) -> Groups:
    """Groups along the `chosen` axes; ``'x':(2)4`` are 4 parts of x inside 2 others."""
    sizes = {name: int(size) for name, size in re.findall(r"'?([^',=]+)'?=(\d+)", axes)}
    positions = dict(zip(sizes, np.indices(tuple(sizes.values())), strict=True))
    for name, outside, size in re.findall(r"'?([^',: ]+)'?(?::\((\d+)\)(\d+))?(?:,|$)", chosen):
        parts = int(size or sizes[name])
        inside = sizes[name] // (int(outside or 1) * parts)
        # Members of a group differ in the chosen parts only: without these they are the same.
        positions[name] -= positions[name] // inside % parts * inside
    group = np.ravel_multi_index(list(positions.values()), tuple(sizes.values())).ravel()
    if device_ids and device_ids.startswith("["):
        ids = _transposed(device_ids).ravel()
    else:
        ids = np.asarray(_integers(device_ids or "") or range(group.size))
    return [ids[group == one].tolist() for one in np.unique(group)]


def _transposed(text: str) -> np.ndarray:
    """The numbers of ``[2,4]T(1,0)``: 0 to 7 as a matrix of two rows, transposed."""
    shape, _, order = text.partition("T")
    ids = np.arange(math.prod(_integers(shape))).reshape(_integers(shape))
    return ids.transpose(_integers(order) or None)


def _lists(text: str) -> list[list[int]]:
    return [_integers(group) for group in re.findall(r"\{([\d,]+)\}", text)]


def _integers(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", text)]
