"""A tree in groups of arrays that travel together."""

from typing import Any

import jax

from jaxcompress.ops.trees import array_bits, only


def buckets(tree: Any, like: Any, bucket_bytes: int | None) -> list[Any]:
    """`tree` as trees that hold some of its arrays each, and `MaskedNode` in place of all others; at least one.

    From the last array to the first, the order in which a backward pass ends with their gradients; a bucket is full
    when the next array would bring it over `bucket_bytes`, by the sizes of `like`. None makes one bucket.
    """
    if bucket_bytes is None:
        return [tree]
    leaves, treedef = jax.tree.flatten(like)
    numbers, filled, number = [0] * len(leaves), 0, 0
    for place in reversed(range(len(leaves))):
        size = array_bits(leaves[place]) // 8
        if filled and filled + size > bucket_bytes:
            number, filled = number + 1, 0
        numbers[place], filled = number, filled + size
    return [only(tree, treedef.unflatten([one == which for one in numbers])) for which in range(number + 1)]
