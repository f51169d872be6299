"""A short text that says which examples a data set has."""

import hashlib

import numpy as np

from train.data.dataset import NOISE, Dataset

_EXAMPLES = 1000


def fingerprint(dataset: Dataset) -> str:
    """The name, the sizes, and a SHA-256 of a thousand shuffled training examples and of the first
    thousand test examples, with their labels.

    Processes with other fingerprints read other data, wherever each of them has its copy.
    """
    examples = dataset.order(np.random.default_rng(0))[:_EXAMPLES]
    train = dataset.train_batch(examples, np.zeros((len(examples), NOISE)))
    test = dataset.test_batch(np.arange(min(_EXAMPLES, dataset.test_size)))
    digest = hashlib.sha256()
    for batch in (train, test):
        for name in sorted(batch):
            digest.update(np.ascontiguousarray(batch[name]).tobytes())
    sizes = f"{dataset.train_size} and {dataset.test_size} examples"
    return f"{dataset.name}, {sizes}, SHA-256 {digest.hexdigest()[:16]}"
