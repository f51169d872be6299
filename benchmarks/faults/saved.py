"""The arrays of a checkpoint, read without the training program."""

from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp


def saved_arrays(workdir: Path, step: int) -> dict[str, np.ndarray]:
    """Every array of a checkpoint by its path."""
    folder = workdir / "checkpoints" / str(step) / "state"
    with ocp.PyTreeCheckpointer() as checkpointer:
        kept = checkpointer.metadata(folder).item_metadata
        # As NumPy arrays, so that their devices do not matter.
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), kept)
        tree = checkpointer.restore(folder, restore_args=as_numpy)
    return {
        jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def differing_arrays(workdir: Path, other: Path, step: int) -> list[str]:
    """The paths of arrays that are not bit-identical in the checkpoints of two runs."""
    found, expected = saved_arrays(workdir, step), saved_arrays(other, step)
    return [
        path
        for path in sorted(found | expected)
        if path not in found
        or path not in expected
        or found[path].tobytes() != expected[path].tobytes()
    ]
