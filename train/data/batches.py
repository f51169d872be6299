"""Batches of a data set, in an order that does not depend on the number of processes.

The order of examples and the augmentation noise are drawn for the whole global batch. A process
then takes a contiguous part of the rows:

    process p of P reads rows [p B / P, (p + 1) B / P) of every global batch of B examples

One process that shards a global batch over its devices splits it at the same rows. So both train on
the same numbers.
"""

import functools
from collections.abc import Iterator

import grain
import numpy as np

from train.data.dataset import NOISE, Batch, Dataset

# One thread prepares the next two batches. A batch takes a few milliseconds, too little to pay for
# worker processes.
_READ_AHEAD = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)

# Two independent random streams of a seed.
_ORDER, _NOISE = 0, 1


def train_batches(
    dataset: Dataset, batch_size: int, seed: int, process_index: int = 0, process_count: int = 1
) -> grain.DatasetIterator[Batch]:
    """An endless iterator of this process's rows of the training batches.

    Each epoch has a new order, of which the last ``train_size % batch_size`` examples are not used.

    Args:
      dataset: the data set.
      batch_size: examples in a batch of all processes together.
      seed: seed of the order and of the noise, at least 0.
      process_index: index of this process.
      process_count: number of processes.

    Returns:
      An iterator of ``{"inputs": (n, …), "labels": (n, …)}`` with n = `batch_size` /
      `process_count`. Its ``get_state()`` is a JSON dict, the same in every process; after
      ``set_state`` the iterator continues bit for bit.

    Raises:
      ValueError: the batch size is not divisible by the number of processes, or there is no full
        batch.
    """
    rows = _rows(batch_size, process_index, process_count)
    if batch_size > dataset.train_size:
        raise ValueError(
            f"batch_size must be at most the {dataset.train_size} training examples; got"
            f" {batch_size}."
        )
    steps = steps_per_epoch(dataset, batch_size)

    @functools.lru_cache(maxsize=1)
    def order(epoch: int) -> np.ndarray:
        return dataset.order(_generator(seed, _ORDER, epoch))

    def load(step: int, step_of_epoch: int) -> Batch:
        start = step_of_epoch * batch_size
        examples = order(step // steps)[start : start + batch_size][rows]
        noise = _generator(seed, _NOISE, step).random((batch_size, NOISE))
        return dataset.train_batch(examples, noise[rows])

    return iter(
        grain.MapDataset.range(steps).repeat().map_with_index(load).to_iter_dataset(_READ_AHEAD)
    )


def steps_per_epoch(dataset: Dataset, batch_size: int) -> int:
    """The number of full batches in the training examples."""
    return dataset.train_size // batch_size


def test_batches(
    dataset: Dataset, batch_size: int, process_index: int = 0, process_count: int = 1
) -> Iterator[Batch]:
    """This process's rows of the test batches, each example once, in a fixed order.

    All batches have one shape, so that one compiled program serves all. The last is padded with
    rows of weight 0.

    Args:
      dataset: the data set.
      batch_size: examples in a batch of all processes together.
      process_index: index of this process.
      process_count: number of processes.

    Returns:
      Batches like those of `train_batches`, with ``"weights"``: float32 in the shape of the labels,
      1 for a label and 0 for padding.

    Raises:
      ValueError: the batch size is not divisible by the number of processes.
    """
    rows = _rows(batch_size, process_index, process_count)
    starts = range(0, dataset.test_size, batch_size)
    return (dataset.test_batch(np.arange(start, start + batch_size)[rows]) for start in starts)


def _generator(seed: int, stream: int, index: int) -> np.random.Generator:
    """Random numbers for one index of a stream; without state, any step can be the first."""
    return np.random.default_rng((seed, stream, index))


def _rows(batch_size: int, process_index: int, process_count: int) -> slice:
    """The rows of a global batch that belong to this process."""
    if batch_size < 1 or batch_size % process_count:
        raise ValueError(
            "batch_size, of all processes together, must be a multiple of their number,"
            f" {process_count}; got {batch_size}."
        )
    if not 0 <= process_index < process_count:
        raise ValueError(f"process_index must be in [0, {process_count}); got {process_index}.")
    local = batch_size // process_count
    return slice(process_index * local, (process_index + 1) * local)
