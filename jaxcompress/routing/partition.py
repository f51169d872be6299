"""A compressor for each kind of array."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from jaxcompress.base import Compressor, Reduced, parseable
from jaxcompress.ops.trees import mask, merge_masked, path_text, sum_bits


@parseable
def partition(compressors: dict[str, Compressor], labels: Callable[[Any], Any]) -> Compressor:
    """Averages each array by the compressor of its label.

    Ready label functions are `by_path`, `by_shape`, `by_size`, `norms_and_biases`, `embeddings` and
    `first_and_last`; `first_label` combines several. Your own function must label each array by its
    path and shape alone, not by other arrays: it is also called with parts of the tree.

    How it travels: one compressor after the other, each with its own messages. `compress` sends
    together all arrays that their compressor does not make smaller, such as those of ``dense()``.

    Guarantees: the law of `Reduced`, and what all its compressors guarantee.

    Args:
      compressors: label -> compressor.
      labels: A function from a tree of arrays to a tree of labels, as in `optax.partition`.

    Returns:
      A `Compressor` whose state is a dict, label -> state.

    Raises:
      ValueError: if `compressors` is not a dict of compressors or `labels` is not a function; while
        tracing, if the label of an array has no compressor.

    Example:
      >>> from jaxcompress.collectives.dense import dense
      >>> from jaxcompress.compressors.low_rank.power_sgd import power_sgd
      >>> from jaxcompress.routing.labels import by_shape
      >>> partition({"matrix": power_sgd(2), "rest": dense()}, by_shape())
      partition({'matrix': power_sgd(2), 'rest': dense()}, by_shape())
    """
    if not isinstance(compressors, dict) or not all(
        isinstance(one, Compressor) for one in compressors.values()
    ):
        raise ValueError(
            'partition takes a dict of compressors, as in {"matrix": power_sgd(2)}; got'
            f" {compressors!r}."
        )
    if not callable(labels):
        raise ValueError(
            f"partition takes a function from a tree to labels, as by_shape(); got {labels!r}."
        )

    def parts_of(tree):
        """label -> the tree with all other arrays masked."""
        try:
            found = labels(tree)
            jax.tree.structure(tree).flatten_up_to(found)  # refuses another structure
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the labels of partition take a tree to a tree of labels, as by_shape(): {error}"
            ) from error
        jax.tree_util.tree_map_with_path(check, tree, found)
        return {
            label: mask(tree, jax.tree.map(lambda one, label=label: one == label, found))
            for label in compressors
        }

    def check(path, x, label):
        del x
        if label not in list(compressors):  # which compares what has no hash, too
            raise ValueError(
                f"the array {path_text(path)!r} is labelled {label!r}; partition knows"
                f" {list(compressors)}."
            )

    def keys_of(key):
        return dict(zip(compressors, jax.random.split(key, max(1, len(compressors))), strict=False))

    def init(key, params):
        keys = keys_of(key)
        return {
            label: compressors[label].init(keys[label], part)
            for label, part in parts_of(params).items()
        }

    def reduce(key, updates, state, axis_name):
        keys = keys_of(key)
        parts = {
            label: compressors[label].reduce(keys[label], part, state[label], axis_name)
            for label, part in parts_of(updates).items()
        }
        reduced = [one for one, _ in parts.values()]
        mean = merge_masked(updates, *(one.mean for one in reduced))
        residual = merge_masked(updates, *(one.residual for one in reduced))
        new_state = {label: new for label, (_, new) in parts.items()}
        return Reduced(mean, residual, sum_bits([one.bits for one in reduced])), new_state

    def message_bits(params):
        parts = parts_of(params).items()
        return merge_masked(params, *(compressors[label].message_bits(x) for label, x in parts))

    return Compressor(
        init,
        reduce,
        message_bits,
        has_memory=any(one.has_memory for one in compressors.values()),
        contracts=all(one.contracts for one in compressors.values()),
        sparsifies=all(one.sparsifies for one in compressors.values()),
        dense_transform=_dense_transform(compressors, labels),
    )


def _dense_transform(compressors: dict[str, Compressor], labels: Callable) -> Any:
    """Every label's own transformation of averages that travel dense; None if no label has one."""
    transforms = {label: one.dense_transform for label, one in compressors.items()}
    if all(one is None for one in transforms.values()):
        return None
    return optax.partition({k: one or optax.identity() for k, one in transforms.items()}, labels)
