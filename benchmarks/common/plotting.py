"""Shared by the plots: writing a figure, an axis of workers, and the colours of methods."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

FAMILIES = {
    "low rank": ("power_sgd", "svd", "acp_sgd"),
    "quantiser": (
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
    "random entries": ("random_k", "bernoulli", "importance"),
    "structured": ("block_sparse", "row_top_k", "column_top_k", "arc_top_k"),
    "largest entries": ("top_k", "block_top_k", "global_top_k", "block_max", "dct"),
}
MARKERS = dict(zip(FAMILIES, "sDxvo", strict=True))

# A compressor has the same colour in every plot, and PyTorch's twin has it too.
COLOURS = {
    "dense": "#808080",
    "cast": "#8c564b",
    "power_sgd": "#1f77b4",
    "block_top_k": "#d62728",
    "block_max": "#f5a3b5",
    "dgc_warmup": "#d81b8c",
    "top_k": "#ff7f0e",
    "qsgd": "#2ca02c",
    "sign": "#7e57c2",
    "int": "#17becf",
    "lloyd_max": "#d9b60a",
    "eden": "#d9b60a",
}
OTHERS = "#404040"
OF_TORCH = {
    "dense": "dense()",
    "fp16": "cast('float16')",
    "PowerSGD": "power_sgd({})",
    "top-k": "top_k({}e-2)",
    "PeriodicModelAverager": "dense()",
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
        return OTHERS
    number = re.match(r"(?:\d+)?\(([\d.e-]+)", text[found.end() :])
    # Ranks and bits are at least 1, densities below it.
    size = math.log2(float(number[1]) or 1) if number else 1.5
    shade = 0.35 + 0.1 * size if size >= 0 else 0.75 + 0.05 * size
    shades = LinearSegmentedColormap.from_list("", ["white", COLOURS[found[0]], "black"])
    return shades(min(max(shade, 0.25), 0.75))


def short(method: str) -> str:
    """An expression as a label: without `error_feedback`, and without what keeps embeddings
    dense.
    """
    text = DENSE_EMBEDDINGS.sub(r"\1", method)
    return re.sub(r"^error_feedback\((.*)\)(, once in \d+ steps)?$", r"\1\2", text)


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
