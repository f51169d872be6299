"""Labels for the arrays of a model, by path or by shape."""

import fnmatch
from collections.abc import Callable
from typing import Any

import jax

from jaxcompress.base import expressible
from jaxcompress.ops.trees import path_text


@expressible
def by_path(patterns: dict[str, str], default: str = "rest") -> Callable[[Any], Any]:
    """Labels each array by the first pattern that matches its path.

    A path is the keys joined by slashes, ``"Conv_0/kernel"``; a pattern is as in a shell: ``*`` matches anything,
    slashes included.

    Args:
      patterns: pattern -> label, in the order they are tried.
      default: The label of an array that no pattern matches.

    Returns:
      A function from a tree of arrays to a tree of labels, as `partition` (and `optax.partition`) take.

    Raises:
      ValueError: if `patterns` is not a dict from text to text, or `default` is not text.

    Example:
      >>> by_path({"*embedding": "dense"})({"embedding": 1.0, "kernel": 2.0})
      {'embedding': 'dense', 'kernel': 'rest'}
    """
    texts = [*patterns, *patterns.values(), default] if isinstance(patterns, dict) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f'by_path takes patterns and their labels, as in {{"*/bias": "rest"}}; got {patterns!r}.')

    def label(path, x):
        del x
        matches = (label for pattern, label in patterns.items() if fnmatch.fnmatchcase(path_text(path), pattern))
        return next(matches, default)

    return lambda tree: jax.tree_util.tree_map_with_path(label, tree)


@expressible
def by_shape(min_axes: int = 2, min_size: int = 1) -> Callable[[Any], Any]:
    """Labels ``"matrix"`` the arrays with at least `min_axes` axes and `min_size` entries, and ``"rest"`` all others.

    Args:
      min_axes: Axes a matrix has at least.
      min_size: Entries a matrix has at least.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Raises:
      ValueError: if an argument is not an integer of at least 0.

    Example:
      >>> import jax.numpy as jnp
      >>> by_shape()({"bias": jnp.zeros(3), "kernel": jnp.zeros((3, 3))})
      {'bias': 'rest', 'kernel': 'matrix'}
    """
    for name, value in (("min_axes", min_axes), ("min_size", min_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is an integer of at least 0; got {value!r}.")
    return lambda tree: jax.tree.map(lambda x: "matrix" if x.ndim >= min_axes and x.size >= min_size else "rest", tree)
