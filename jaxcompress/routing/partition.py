"""A compressor for each kind of array."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.base import Compressor, Reduced, expressible, facts_of
from jaxcompress.collectives.dense import dense
from jaxcompress.ops.trees import join, only, path_text, sum_bits


@expressible
def partition(compressors: dict[str, Compressor], labels: Callable[[Any], Any]) -> Compressor:
    """Averages each array by the compressor of its label.

    Ready label functions are `by_path`, `by_shape`, `by_size`, `norms_and_biases`, `embeddings` and `first_and_last`;
    `first_of` puts several together. A function of your own labels each array by its path and its shape, and not by
    the arrays beside it: it is also called with parts of the tree.

    How it travels: one compressor after the other, each with its own messages. Arrays that their compressor does not
    make smaller (those labelled ``dense()``, say) are sent together by `compress`.

    Guarantees: what all its compressors guarantee; ``mean == pmean(sent)`` if they keep it.

    Args:
      compressors: label -> compressor.
      labels: From a tree of arrays to a tree of labels, as in `optax.partition`.

    Returns:
      A `Compressor` whose state is a dict, label -> state.

    Raises:
      ValueError: if `compressors` is not a dict of compressors or `labels` not a function; while tracing, if an array's
        label has no compressor.

    Example:
      >>> from jaxcompress.collectives.dense import dense
      >>> from jaxcompress.compressors.low_rank.power_sgd import power_sgd
      >>> from jaxcompress.routing.labels import by_shape
      >>> partition({"matrix": power_sgd(2), "rest": dense()}, by_shape()).expression
      "partition({'matrix': power_sgd(2), 'rest': dense()}, by_shape())"
    """
    if not isinstance(compressors, dict) or not all(isinstance(one, Compressor) for one in compressors.values()):
        raise ValueError(
            f'partition takes a dict of compressors, as in {{"matrix": power_sgd(2)}}; got {compressors!r}.'
        )
    if not callable(labels):
        raise ValueError(f"partition takes a function from a tree to labels, as by_shape(); got {labels!r}.")

    def parts_of(tree):
        """label -> the tree with all other arrays masked."""
        try:
            found = labels(tree)
        except TypeError as error:
            raise ValueError(
                f"the labels of partition take a tree to a tree of labels, as by_shape(): {error}"
            ) from error
        jax.tree_util.tree_map_with_path(check, found)
        return {label: only(tree, jax.tree.map(lambda one, label=label: one == label, found)) for label in compressors}

    def check(path, label):
        if label not in compressors:
            raise ValueError(
                f"the array {path_text(path)!r} is labelled {label!r}; partition knows {sorted(compressors)}."
            )

    def init(key, params):
        keys = dict(zip(compressors, jax.random.split(key, max(1, len(compressors))), strict=False))
        return {label: compressors[label].init(keys[label], part) for label, part in parts_of(params).items()}

    def reduce(key, updates, state, axis_name):
        keys = dict(zip(compressors, jax.random.split(key, max(1, len(compressors))), strict=False))
        parts = {
            label: compressors[label].reduce(keys[label], part, state[label], axis_name)
            for label, part in parts_of(updates).items()
        }
        reduced = [one for one, _ in parts.values()]
        mean = join(updates, *(one.mean for one in reduced))
        sent = join(updates, *(one.sent for one in reduced))
        new_state = {label: new for label, (_, new) in parts.items()}
        squared_norm = sum((one.energy() for one in reduced), jnp.float32(0))
        return Reduced(mean, sent, sum_bits([one.bits for one in reduced]), squared_norm=squared_norm), new_state

    def otherwise():
        """The same partition of what averages the arrays that do not pay, where one of them is more than a mean."""
        if all(one.otherwise is None for one in compressors.values()):
            return None
        return partition({label: one.otherwise or dense() for label, one in compressors.items()}, labels)

    def message_bits(params):
        return join(params, *(compressors[label].message_bits(part) for label, part in parts_of(params).items()))

    return Compressor(init, reduce, message_bits, otherwise=otherwise(), **facts_of(*compressors.values()))
