"""The command of each scheme; the slow test checks that every scheme learns."""

import os
from pathlib import Path

import pytest
from train_helpers import finish, start, summary_of

from benchmarks.common.expressions import SCHEMES
from benchmarks.scheme_survey.runs import LEFT_OUT, arguments, names
from train.config import load_config

# Guessing reaches one in ten. A wrong average stays there, or diverges. Dense training reaches 98 %
# in 200 steps. Half of the images are out of reach by chance, and leave room for noisy schemes.
LEARNS = 0.5
needs_mnist = pytest.mark.skipif(
    not (
        Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser() / "mnist"
    ).is_dir(),
    reason="MNIST is not prepared; TFDS_DATA_DIR names the folder",
)


@pytest.mark.parametrize("name", names())
def test_every_command_is_a_run_of_200_steps_with_its_scheme(name):
    config = load_config(arguments(name))
    assert round(config.epochs * 468) == 200
    assert (config.name, config.compressor, config.workers) == ("mnist_dense", SCHEMES[name], 4)
    assert config.learning_rate == (0.0001 if name == "sign_majority" else 0.05)


def test_all_schemes_except_those_left_out_are_trained():
    assert set(names()) == set(SCHEMES) - set(LEFT_OUT)


# In each run of the tests tests/train trains `top_k` on MNIST, `sign` and `momentum_correction` on
# the digits and `power_sgd` on text.
@pytest.mark.slow
@needs_mnist
@pytest.mark.parametrize("name", names())
def test_every_scheme_learns_in_200_steps(name):
    # With XLA's own flags, as users run it.
    summary = summary_of(finish(start(*arguments(name), flags=""), timeout_seconds=1800))
    assert summary["steps"] == 200
    assert summary["test_accuracy"] > LEARNS
