"""Labels for arrays that often need their own treatment: norms and biases, embeddings, end layers.

A label depends only on the array itself, its shape or its path, and never on other arrays.
`compress` gives a `partition` only parts of the tree: without the arrays that travel dense, and
bucket by bucket.
"""

import fnmatch
import itertools
from collections.abc import Callable
from typing import Any

import jax

from jaxcompress.base import parseable
from jaxcompress.ops.trees import path_text

# Tables are named "embedding" in Flax and "embeddings" in Haiku; positions "pos_embedding".
EMBEDDINGS = "*[Ee]mbed*"


@parseable
def norms_and_biases() -> Callable[[Any], Any]:
    """Labels arrays of at most one axis ``"vector"``, such as biases; others ``"rest"``.

    Biases and the scales of norms have few entries and large gradients. With scanned layers they
    have one more axis. Label those by path: ``by_path({"*/bias": "vector", "*/scale": "vector"})``.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Example:
      >>> import jax.numpy as jnp
      >>> norms_and_biases()({"bias": jnp.zeros(3), "kernel": jnp.zeros((3, 3))})
      {'bias': 'vector', 'kernel': 'rest'}
    """
    return lambda tree: jax.tree.map(lambda x: "vector" if x.ndim < 2 else "rest", tree)


@parseable
def embeddings(*patterns: str) -> Callable[[Any], Any]:
    """Labels arrays of two axes or more by path: ``"embedding"`` if it matches, else ``"rest"``.

    A path is the keys joined by slashes, ``"Embed_0/embedding"``. A pattern works as in a shell,
    and must match the whole path; ``*`` also matches slashes. A batch uses few rows of such a
    table; `row_top_k` sends only these.

    Args:
      *patterns: Patterns such as ``"*wte*"``, ``"*/table"``; the default is ``"*[Ee]mbed*"``.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Raises:
      ValueError: if a pattern is not a string.

    Example:
      >>> import jax.numpy as jnp
      >>> table, kernel = jnp.zeros((9, 3)), jnp.zeros((3, 3))
      >>> embeddings()({"Embed_0": {"embedding": table}, "Dense_0": {"kernel": kernel}})
      {'Dense_0': {'kernel': 'rest'}, 'Embed_0': {'embedding': 'embedding'}}
    """
    if not all(isinstance(one, str) for one in patterns):
        raise ValueError(
            'embeddings takes patterns of paths, as in embeddings("*wte*", "*wpe*"); got'
            f" {patterns!r}."
        )
    tables = patterns or (EMBEDDINGS,)

    def label(path, x):
        matches = any(fnmatch.fnmatchcase(path_text(path), one) for one in tables)
        return "embedding" if x.ndim > 1 and matches else "rest"

    return lambda tree: jax.tree_util.tree_map_with_path(label, tree)


@parseable
def first_and_last(first: str, last: str) -> Callable[[Any], Any]:
    """Labels the arrays of two named layers ``"first"`` and ``"last"``; all others ``"rest"``.

    The tree does not say which layer comes first. Flax sorts names, so ``BatchNorm_0`` precedes
    ``Conv_0`` and ``Dense_10`` precedes ``Dense_2``; and a step may compress only a part of the
    tree. So the layers are named: ``first_and_last("Conv_0", "Dense_1")``. A name is a path from
    the root to a layer or an array, or a shell pattern: ``"*/Dense_1"`` finds that layer inside
    others.

    Args:
      first: The layer that takes the inputs.
      last: The layer that gives the outputs.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Raises:
      ValueError: if a name is not a string, or is empty.

    Example:
      >>> import jax.numpy as jnp
      >>> layer = {"kernel": jnp.zeros((3, 3))}
      >>> first_and_last("Conv_0", "Dense_1")({"Conv_0": layer, "Dense_0": layer, "Dense_1": layer})
      {'Conv_0': {'kernel': 'first'}, 'Dense_0': {'kernel': 'rest'}, 'Dense_1': {'kernel': 'last'}}
    """
    for place, name in (("first", first), ("last", last)):
        if not isinstance(name, str) or not name:
            raise ValueError(
                f'{place} is the name of a layer, as in first_and_last("Conv_0", "Dense_1"); got'
                f" {name!r}."
            )

    def label(path, x):
        del x
        above = list(itertools.accumulate(path_text(path).split("/"), "{}/{}".format))
        names = (("first", first), ("last", last))
        return next(
            (
                place
                for place, name in names
                if any(fnmatch.fnmatchcase(one, name) for one in above)
            ),
            "rest",
        )

    return lambda tree: jax.tree_util.tree_map_with_path(label, tree)
