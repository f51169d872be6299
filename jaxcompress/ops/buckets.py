"""A tree in groups of arrays that travel together."""

import re
from typing import Any

import jax

from jaxcompress.ops.trees import array_bits, only, path_text


def buckets(tree: Any, like: Any, bucket_bytes: int | None) -> list[Any]:
    """`tree` as trees that hold some of its arrays each, and `MaskedNode` in place of all others; at least one.

    From the last array to the first, by their names, in which numbers count as numbers: ``Block_9`` stands before
    ``Block_10``. That is about the order in which a backward pass ends with their gradients. A bucket is full when the
    next array would bring it over `bucket_bytes`, by the sizes of `like`. None makes one bucket.
    """
    if bucket_bytes is None:
        return [tree]
    leaves, treedef = jax.tree.flatten(like)
    names = [_words_and_numbers(path_text(path)) for path, _ in jax.tree_util.tree_leaves_with_path(like)]
    numbers, filled, number = [0] * len(leaves), 0, 0
    for place in sorted(range(len(leaves)), key=names.__getitem__, reverse=True):
        size = array_bits(leaves[place]) // 8
        if filled and filled + size > bucket_bytes:
            number, filled = number + 1, 0
        numbers[place], filled = number, filled + size
    return [only(tree, treedef.unflatten([one == which for one in numbers])) for which in range(number + 1)]


def _words_and_numbers(name: str) -> list[str | int]:
    """A name to sort by: words and numbers in turn, beginning with a word, if an empty one."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", name))]
