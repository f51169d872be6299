"""The trained model of a workdir, read without the run."""

import dataclasses
import shutil

import flax.linen as nn
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from train_helpers import ALONE, StopAfter

from train.config import Config

# pytest takes names with "test_" for tests.
from train.data.batches import test_batches as batches_of_test
from train.data.registry import load_dataset
from train.errors import InputError
from train.loop import train
from train.models.build_model import build_model
from train.signals import InterruptedRunError
from train.task import batch_sums
from train.trained import read_trained

# One process runs them all, so that they share a run.
pytestmark = pytest.mark.xdist_group("trained")

RUN = Config(
    **ALONE, workers=2, vmap=True, epochs=0.2, compressor="error_feedback(block_top_k(0.05))"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The config of a run, and its summary."""
    config = dataclasses.replace(RUN, workdir=str(tmp_path_factory.mktemp("finished")))
    return config, train(config)


def test_it_is_the_model_that_was_evaluated(finished):
    config, summary = finished
    trained = read_trained(config.workdir)
    assert trained.step == summary["steps"]
    assert trained.settings["model"] == config.model
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(trained[2:]))

    dataset = load_dataset(config.dataset, None, config.context, "test")
    batches = list(batches_of_test(dataset, config.batch_size, 0, 1))
    model = build_model(config.model, dataset.num_classes, batches[0]["inputs"].shape[1:])
    loss, correct, weight = (
        sum(column)
        for column in zip(
            *(batch_sums(model, trained.params, trained.batch_stats, one) for one in batches),
            strict=True,
        )
    )
    assert loss / weight == pytest.approx(summary["test_loss"], rel=1e-4)
    assert correct / weight == pytest.approx(summary["test_accuracy"])


class WithStatistics(nn.Module):
    """A small model with running statistics, which compiles faster than a residual network."""

    @nn.compact
    def __call__(self, images, train):
        """The logits of a batch of images."""
        x = images.reshape(len(images), -1)
        return nn.Dense(10)(nn.BatchNorm(use_running_average=not train)(x))


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_running_statistics_in_a_period_are_the_mean_over_workers(tmp_path, monkeypatch):
    monkeypatch.setattr("train.loop.build_model", lambda *args, **kwargs: WithStatistics())
    config = dataclasses.replace(RUN, workdir=str(tmp_path), period=4)
    with pytest.raises(InterruptedRunError):
        train(config, StopAfter(1))
    with ocp.PyTreeCheckpointer() as checkpointer:
        saved = checkpointer.restore(tmp_path / "checkpoints" / "1" / "state")
    own = jax.tree.leaves(saved["batch_stats"])
    found = jax.tree.leaves(read_trained(tmp_path).batch_stats)
    assert len(own) == len(found) > 0
    for rows, mean in zip(own, found, strict=True):
        assert (rows[0] != rows[1]).any()
        np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-6)


def test_without_a_checkpoint_it_says_so(tmp_path):
    with pytest.raises(InputError, match=r"no complete checkpoint. Give the --workdir"):
        read_trained(tmp_path)


def test_a_damaged_checkpoint_is_not_read(tmp_path, finished):
    shutil.copytree(finished[0].workdir, tmp_path, dirs_exist_ok=True)
    (file,) = (tmp_path / "checkpoints").glob("*/record/metadata")
    file.write_bytes(b"{}")
    with pytest.raises(InputError, match=r"is damaged: record/metadata has changed"):
        read_trained(tmp_path)
