"""Labels for the arrays of a model by path, shape or size, and combinations of such labels."""

import fnmatch
from collections.abc import Callable
from typing import Any

import jax

from jaxcompress.base import parseable
from jaxcompress.ops.argument_checks import UNBOUNDED, check_integer
from jaxcompress.ops.trees import path_text


@parseable
def by_path(patterns: dict[str, str], default: str = "rest") -> Callable[[Any], Any]:
    """Labels each array by the first pattern that matches its path.

    A path is the keys joined by slashes, ``"Conv_0/kernel"``. A pattern works as in a shell: ``*``
    matches anything, slashes included.

    Args:
      patterns: pattern -> label, in the order they are tried.
      default: The label of an array that no pattern matches.

    Returns:
      A function from a tree of arrays to a tree of labels, for `partition` or `optax.partition`.

    Raises:
      ValueError: if `patterns` is not a dict from strings to strings, or `default` is not a string.

    Example:
      >>> by_path({"*embedding": "dense"})({"embedding": 1.0, "kernel": 2.0})
      {'embedding': 'dense', 'kernel': 'rest'}
    """
    texts = [*patterns, *patterns.values(), default] if isinstance(patterns, dict) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            'by_path takes patterns and their labels, as in {"*/bias": "rest"}; got'
            f" {patterns!r}."
        )

    def label(path, x):
        del x
        matches = (
            label
            for pattern, label in patterns.items()
            if fnmatch.fnmatchcase(path_text(path), pattern)
        )
        return next(matches, default)

    return lambda tree: jax.tree_util.tree_map_with_path(label, tree)


@parseable
def by_shape(min_axes: int = 2, min_size: int = 1) -> Callable[[Any], Any]:
    """Labels arrays ``"matrix"`` that have enough axes and entries, and all others ``"rest"``.

    Args:
      min_axes: The least number of axes of a matrix.
      min_size: The least number of entries of a matrix.

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
        check_integer(name, value, 0, most=UNBOUNDED)
    return lambda tree: jax.tree.map(
        lambda x: "matrix" if x.ndim >= min_axes and x.size >= min_size else "rest", tree
    )


@parseable
def by_size(small: int, large: int | None = None) -> Callable[[Any], Any]:
    """Labels arrays of fewer than `small` entries ``"small"``, of at least `large` ``"large"``.

    All others are ``"rest"``.

    Args:
      small: Arrays with fewer entries are small.
      large: Arrays with this many entries or more are large, at least `small`; None labels none so.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Raises:
      ValueError: if `small` is not an integer of at least 0, or `large` is not one of at least
        `small`.

    Example:
      >>> import jax.numpy as jnp
      >>> params = {"bias": jnp.zeros(3), "kernel": jnp.zeros((3, 8)), "table": jnp.zeros((500, 8))}
      >>> by_size(10, large=1000)(params)
      {'bias': 'small', 'kernel': 'rest', 'table': 'large'}
    """
    meaning = "the entries from which an array is no longer small"
    check_integer("small", small, 0, meaning, UNBOUNDED)
    if large is not None:
        meaning = "the entries from which an array is large"
        check_integer("large", large, small, meaning, UNBOUNDED)

    def label(x):
        if x.size < small:
            return "small"
        return "large" if large is not None and x.size >= large else "rest"

    return lambda tree: jax.tree.map(label, tree)


@parseable
def first_label(*labels: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Labels each array by the first of several functions whose label is not ``"rest"``.

    ``first_label(norms_and_biases(), embeddings(), first_and_last("Conv_0", "Dense_1"))`` gives the
    labels ``"vector"``, ``"embedding"``, ``"first"``, ``"last"`` and ``"rest"``. The bias of
    ``Dense_1`` is a ``"vector"``, since `norms_and_biases` is first.

    Args:
      *labels: At least one: `by_path`, `by_shape`, `by_size`, `norms_and_biases`, `embeddings`,
        `first_and_last`, or any function from a tree of arrays to a tree of labels.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Raises:
      ValueError: if there is no argument, or one is not a function.

    Example:
      >>> import jax.numpy as jnp
      >>> labels = first_label(by_size(10), by_path({"*embedding": "embedding"}))
      >>> table, kernel = jnp.zeros((9, 3)), jnp.zeros((3, 8))
      >>> labels({"bias": jnp.zeros(3), "embedding": table, "kernel": kernel})
      {'bias': 'small', 'embedding': 'embedding', 'kernel': 'rest'}
    """
    if not labels or not all(callable(one) for one in labels):
        raise ValueError(
            "first_label takes functions from a tree to labels, as in first_label(by_size(9),"
            f" by_shape()); got {labels!r}."
        )

    def label(tree):
        found = [one(tree) for one in labels]
        return jax.tree.map(
            lambda *each: next((one for one in each if one != "rest"), "rest"), *found
        )

    return label
