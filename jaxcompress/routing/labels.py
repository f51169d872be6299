"""Labels for the arrays of a model, by path, shape or size, or by the first of several that has one."""

import fnmatch
from collections.abc import Callable
from typing import Any

import jax

from jaxcompress.base import expressible
from jaxcompress.ops.checks import check_integer
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


@expressible
def by_size(small: int, large: int | None = None) -> Callable[[Any], Any]:
    """Labels ``"small"`` the arrays of fewer than `small` entries, ``"large"`` those of at least `large`.

    All between, or all others without `large`, are ``"rest"``.

    Args:
      small: Entries from which an array is no longer small.
      large: Entries from which it is large, at least `small`; None labels none so.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Raises:
      ValueError: if `small` is not an integer of at least 0, or `large` not one of at least `small`.

    Example:
      >>> import jax.numpy as jnp
      >>> by_size(10, large=1000)({"bias": jnp.zeros(3), "kernel": jnp.zeros((3, 8)), "table": jnp.zeros((500, 8))})
      {'bias': 'small', 'kernel': 'rest', 'table': 'large'}
    """
    check_integer("small", small, 0, "the entries from which an array is no longer small")
    if large is not None:
        check_integer("large", large, small, "the entries from which an array is large")

    def label(x):
        if x.size < small:
            return "small"
        return "large" if large is not None and x.size >= large else "rest"

    return lambda tree: jax.tree.map(label, tree)


@expressible
def first_of(*labels: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Labels each array by the first of these functions that calls it something else than ``"rest"``.

    ``first_of(norms_and_biases(), embeddings(), first_and_last("Conv_0", "Dense_1"))`` knows the labels ``"vector"``,
    ``"embedding"``, ``"first"``, ``"last"`` and ``"rest"``; the bias of ``Dense_1`` is a ``"vector"``, since that is
    asked first.

    Args:
      *labels: At least one: `by_path`, `by_shape`, `by_size`, `norms_and_biases`, `embeddings`, `first_and_last`, or
        any function from a tree of arrays to a tree of labels.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Raises:
      ValueError: if there is no function, or something else than functions.

    Example:
      >>> import jax.numpy as jnp
      >>> labels = first_of(by_size(10), by_path({"*embedding": "embedding"}))
      >>> labels({"bias": jnp.zeros(3), "embedding": jnp.zeros((9, 3)), "kernel": jnp.zeros((3, 8))})
      {'bias': 'small', 'embedding': 'embedding', 'kernel': 'rest'}
    """
    if not labels or not all(callable(one) for one in labels):
        raise ValueError(
            f"first_of takes functions from a tree to labels, as in first_of(by_size(9), by_shape()); got {labels!r}."
        )

    def label(tree):
        found = [one(tree) for one in labels]
        return jax.tree.map(lambda *each: next((one for one in each if one != "rest"), "rest"), *found)

    return label
