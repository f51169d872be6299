"""Shared by the plots: writing a figure, an axis of workers, and the colours of methods."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
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


# A compressor has the same colour in every plot, and PyTorch's twin has it too.
COLOURS = {
    "dense": "Greys",
    "cast": "copper_r",
    "power_sgd": "Blues",
    "block_top_k": "Reds",
    "block_max": "pink_r",
    "dgc_warmup": "PuRd",
    "top_k": "Oranges",
    "qsgd": "Greens",
    "sign": "Purples",
    "int": "BuGn",
}
OF_TORCH = {
    "dense": "dense()",
    "fp16": "cast('float16')",
    "PowerSGD": "power_sgd({})",
    "top-k": "top_k({}e-2)",
}
DENSE_EMBEDDINGS = re.compile(
    r"partition\(\{'embedding': dense\(\), 'rest': (.*)\}, by_path\(\{[^}]*\}\)\)"
)


def colour(method: str) -> Any:
    """The colour of an expression or of a method of PyTorch: a hue by its compressor, the one that
    selects or rounds, and darker for more bits.
    """
    text = _expression(method)
    found = re.search("|".join(sorted(COLOURS, key=len, reverse=True)), text)
    if not found:
        return "#777777"
    number = re.match(r"(?:\d+)?\(([\d.e-]+)", text[found.end() :])
    # Ranks and bits are at least 1, densities below it.
    size = math.log2(float(number[1]) or 1) if number else 1.5
    shade = 0.5 + 0.15 * size if size >= 0 else 1.0 + 0.06 * size
    return colormaps[COLOURS[found[0]]](min(max(shade, 0.35), 0.95))


def short(method: str) -> str:
    """An expression as a label: without `error_feedback`, and without what keeps embeddings
    dense.
    """
    text = DENSE_EMBEDDINGS.sub(r"\1", method)
    inner = re.fullmatch(r"error_feedback\((.*)\)", text)
    return inner[1] if inner else text


def _expression(method: str) -> str:
    """The same for a method of PyTorch, with its number."""
    for words, text in OF_TORCH.items():
        if words in method and "(" not in method:
            number = re.search(r"(\d+)( %)?(?:,|$)", method)
            return text.format(number[1] if number else "")
    return DENSE_EMBEDDINGS.sub(r"\1", method)


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
