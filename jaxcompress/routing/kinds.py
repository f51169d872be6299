"""Labels for the kinds of arrays that are often treated apart: norms and biases, embeddings, the first and last layer.

Each label is a matter of the array itself, its shape or its path, and never of the arrays beside it: `compress` hands
a `partition` parts of the tree, without the arrays that travel dense, and bucket by bucket.
"""

import fnmatch
import itertools
from collections.abc import Callable
from typing import Any

import jax

from jaxcompress.base import expressible
from jaxcompress.ops.trees import path_text

# The tables of nn.Embed are called "embedding" in Flax, "embeddings" in Haiku; learned positions "pos_embedding".
EMBEDDINGS = "*[Ee]mbed*"


@expressible
def norms_and_biases() -> Callable[[Any], Any]:
    """Labels ``"vector"`` the arrays of one axis or none: biases, the scales of norms. All others are ``"rest"``.

    They are few entries, and their gradients are large. Where layers are scanned they have one axis more: name those
    by path, ``by_path({"*/bias": "vector", "*/scale": "vector"})``.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Example:
      >>> import jax.numpy as jnp
      >>> norms_and_biases()({"bias": jnp.zeros(3), "kernel": jnp.zeros((3, 3))})
      {'bias': 'vector', 'kernel': 'rest'}
    """
    return lambda tree: jax.tree.map(lambda x: "vector" if x.ndim < 2 else "rest", tree)


@expressible
def embeddings(*patterns: str) -> Callable[[Any], Any]:
    """Labels ``"embedding"`` the arrays of two axes or more whose path matches a pattern. All others are ``"rest"``.

    A path is the keys joined by slashes, ``"Embed_0/embedding"``; a pattern is as in a shell, and matches the whole of
    it, slashes included. A batch touches few rows of such a table: `row_top_k` sends these, and no others.

    Args:
      *patterns: ``"*wte*"``, ``"*/table"``; without any, ``"*[Ee]mbed*"``.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Raises:
      ValueError: if a pattern is not text.

    Example:
      >>> import jax.numpy as jnp
      >>> embeddings()({"Embed_0": {"embedding": jnp.zeros((9, 3))}, "Dense_0": {"kernel": jnp.zeros((3, 3))}})
      {'Dense_0': {'kernel': 'rest'}, 'Embed_0': {'embedding': 'embedding'}}
    """
    if not all(isinstance(one, str) for one in patterns):
        raise ValueError(f'embeddings takes patterns of paths, as in embeddings("*wte*", "*wpe*"); got {patterns!r}.')
    tables = patterns or (EMBEDDINGS,)

    def label(path, x):
        matches = any(fnmatch.fnmatchcase(path_text(path), one) for one in tables)
        return "embedding" if x.ndim > 1 and matches else "rest"

    return lambda tree: jax.tree_util.tree_map_with_path(label, tree)


@expressible
def first_and_last(first: str, last: str) -> Callable[[Any], Any]:
    """Labels ``"first"`` and ``"last"`` the arrays of the layers with these names. All others are ``"rest"``.

    The tree does not know which layer comes first: Flax sorts names, so ``BatchNorm_0`` stands before ``Conv_0`` and
    ``Dense_10`` before ``Dense_2``, and what a step compresses may be a part of the tree. So the layers are named:
    ``first_and_last("Conv_0", "Dense_1")``. A name is a path from the top of the tree, to a layer or to one array, or a
    pattern as in a shell: ``"*/Dense_1"`` finds that layer inside others.

    Args:
      first: The layer that sees the inputs.
      last: The layer that gives the outputs.

    Returns:
      A function from a tree of arrays to a tree of labels.

    Raises:
      ValueError: if a name is not text, or empty.

    Example:
      >>> import jax.numpy as jnp
      >>> layer = {"kernel": jnp.zeros((3, 3))}
      >>> first_and_last("Conv_0", "Dense_1")({"Conv_0": layer, "Dense_0": layer, "Dense_1": layer})
      {'Conv_0': {'kernel': 'first'}, 'Dense_0': {'kernel': 'rest'}, 'Dense_1': {'kernel': 'last'}}
    """
    for place, name in (("first", first), ("last", last)):
        if not isinstance(name, str) or not name:
            raise ValueError(
                f'{place} is the name of a layer, as in first_and_last("Conv_0", "Dense_1"); got {name!r}.'
            )

    def label(path, x):
        del x
        above = list(itertools.accumulate(path_text(path).split("/"), "{}/{}".format))
        names = (("first", first), ("last", last))
        return next((place for place, name in names if any(fnmatch.fnmatchcase(one, name) for one in above)), "rest")

    return lambda tree: jax.tree_util.tree_map_with_path(label, tree)
