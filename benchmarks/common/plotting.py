"""Shared by the plots: writing a figure, an axis of workers, and families of compressors."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

FAMILIES = {
    "low rank": ("power_sgd", "svd", "acp_sgd"),
    "quantiser": (
        *(
            "qsgd",
            "nuqsgd",
            "terngrad",
            "natural",
            "int",
            "float8",
            "cast",
            "sign",
            "rotated",
            "lloyd_max",
            "eden",
        ),
    ),
    "random entries": ("random_k", "bernoulli", "importance"),
    "structured": ("block_sparse", "row_top_k", "column_top_k", "arc_top_k"),
    "largest entries": ("top_k", "block_top_k", "global_top_k", "block_max"),
}
MARKERS = dict(zip(FAMILIES, "sDxv.", strict=True))


def family(text: str) -> str | None:
    """The family of the outermost constructor of an expression; None for wrappers and `dense`."""
    name = text.split("(")[0].removeprefix("batched_")
    return next((label for label, names in FAMILIES.items() if name.startswith(names)), None)


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure and returns its path."""
    figure.savefig(path, dpi=110)
    return path


def worker_ticks(axes: Axes, workers: Sequence[int]) -> None:
    """Labels a logarithmic axis with numbers of workers."""
    axes.set_xticks(workers, [str(count) for count in workers])
    axes.minorticks_off()
