"""A run from its config to its summary."""

import dataclasses
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import slow
from train_helpers import ALONE, finish, logged, start, summary_of

from benchmarks.faults.saved import saved_arrays
from train.__main__ import main
from train.config import Config
from train.data.batches import train_batches
from train.data.images import Split
from train.data.registry import DATASETS, load_dataset
from train.data.text import make_text
from train.errors import DivergedError, InputError
from train.loop import train
from train.metrics import Summary

# Eight workers, one for each device of these tests. An epoch of the digits has 11 steps.
SMALL = Config(**ALONE, batch_size=128, workers=8, epochs=1.0, log_every_steps=4)
COMPRESSED = dataclasses.replace(SMALL, compressor="error_feedback(top_k(density=0.05))")


# The tests of this group share one run.
same_run = pytest.mark.xdist_group("finished")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Config, Summary]:
    """A compressed run with a workdir, and its summary."""
    config = dataclasses.replace(COMPRESSED, workdir=str(tmp_path_factory.mktemp("run")))
    return config, train(config)


@same_run
def test_summary_has_all_its_keys_and_the_canonical_compressor(finished):
    _, summary = finished
    assert summary.keys() == Summary.__annotations__.keys()
    assert summary["compressor"] == "error_feedback(top_k(0.05))"
    assert (summary["steps"], summary["workers"]) == (11, 8)
    assert summary["test_perplexity"] == pytest.approx(math.exp(summary["test_loss"]))
    assert (
        0
        < summary["bytes_per_step"]
        == summary["final_bytes_per_step"]
        < summary["dense_bytes_per_step"]
    )


@same_run
def test_metrics_have_loss_accuracy_rate_bytes_and_what_is_unsent(finished):
    config, summary = finished
    lines = logged(Path(config.workdir))
    training = [line for line in lines if "train_loss" in line]
    assert [line["step"] for line in training] == [4, 8, 11]
    for line in training:
        assert 0 < line["unsent_energy"] < 1
        assert line["bytes_sent"] == line["step"] * summary["bytes_per_step"]
        assert {"train_accuracy", "learning_rate", "memory_norm"} <= line.keys()
    assert lines[-1] == {
        "step": 11,
        "test_loss": summary["test_loss"],
        "test_accuracy": summary["test_accuracy"],
        "test_perplexity": summary["test_perplexity"],
    }


@same_run
def test_finished_run_started_again_gives_the_same_summary_and_does_not_train(finished):
    config, summary = finished
    before = logged(Path(config.workdir))
    assert train(config) == summary
    assert logged(Path(config.workdir)) == before


@same_run
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "resnet8"),
        ("compressor", "dense()"),
        ("batch_size", 64),
        ("learning_rate", 0.2),
    ],
)
def test_checkpoint_of_another_run_is_refused_and_kept(finished, field, value, monkeypatch):
    config, summary = finished
    # Eight devices exist already; four of them make a mesh, too.
    monkeypatch.setattr("jaxcompress.virtual_cpu_workers", lambda workers: None)
    with pytest.raises(
        InputError, match=f"{field} was .*, is now {re.escape(repr(value))}"
    ) as error:
        train(dataclasses.replace(config, **{field: value}))
    assert "--workdir" in str(error.value)
    assert train(config) == summary


@same_run
def test_compressor_written_differently_is_the_same_run(finished):
    config, summary = finished
    assert (
        train(dataclasses.replace(config, compressor="error_feedback(inner=top_k(0.05))"))
        == summary
    )


def test_without_a_workdir_no_file_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(dataclasses.replace(SMALL, epochs=0.2))
    assert list(tmp_path.iterdir()) == []


def test_dense_sends_what_dense_sends():
    summary = train(dataclasses.replace(SMALL, epochs=0.1))
    assert summary["bytes_per_step"] == summary["dense_bytes_per_step"] > 0


@same_run
def test_final_bytes_of_a_switch_are_those_of_its_last_choice(finished):
    _, last = finished
    switched = train(
        dataclasses.replace(SMALL, epochs=0.1, compressor="switch(warmup(1), dense(), top_k(0.05))")
    )
    assert switched["bytes_per_step"] == switched["dense_bytes_per_step"]
    assert switched["final_bytes_per_step"] == last["bytes_per_step"]


# That they have no choices: tests/train/test_startup.py.
@pytest.mark.slow
def test_alternating_factors_have_no_final_choice():
    summary = train(dataclasses.replace(SMALL, epochs=0.1, compressor="acp_sgd(2)"))
    assert 0 < summary["final_bytes_per_step"] == summary["bytes_per_step"]


def test_diverged_run_stops_and_saves_nothing_more(tmp_path):
    diverging = dataclasses.replace(
        SMALL,
        learning_rate=1e6,
        epochs=20.0,
        log_every_steps=50,
        checkpoint_every_steps=1,
        workdir=str(tmp_path),
    )
    with pytest.raises(DivergedError) as error:
        train(diverging)
    reported = re.search(
        r"11 steps in a row, up to step (\d+), .*--learning-rate \(1000000\.0\)", str(error.value)
    )
    assert reported is not None
    saved = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert saved[-1] == int(reported[1]) - 1
    assert f"The last checkpoint is that of step {saved[-1]}." in str(error.value)
    # The saved state is from before the first skipped step: all of it is finite.
    arrays = saved_arrays(tmp_path, saved[-1])
    assert all(np.isfinite(x).all() for x in arrays.values() if np.issubdtype(x.dtype, np.floating))
    with pytest.raises(DivergedError, match=f"11 steps in a row, up to step {reported[1]}"):
        train(diverging)


def test_divergence_is_found_when_logging_and_ends_with_exit_code_1(capsys):
    alone = [
        word
        for field, value in ALONE.items()
        for word in (f"--{field.replace('_', '-')}", str(value))
    ]
    stops = ["--learning-rate", "1e6", "--log-every-steps", "9", "--max-skipped-steps", "0"]
    assert main([*alone, "--workers", "8", *stops]) == 1
    reported = capsys.readouterr()
    assert reported.out == ""
    assert re.search(
        r"diverged: \d+ steps in a row, up to step \d+, had gradients that are not finite",
        reported.err,
    )
    assert "Without --workdir there is no checkpoint." in reported.err


class Spoiled:
    """Batches in which the images of one worker are NaN in the given steps, counted from 1."""

    def __init__(self, batches, steps):
        self._batches, self._steps, self._number = batches, steps, 0
        self.get_state = batches.get_state

    def __next__(self):
        batch, self._number = next(self._batches), self._number + 1
        inputs = np.array(batch["inputs"])
        inputs[:2] = np.nan if self._number in self._steps else inputs[:2]
        return batch | {"inputs": inputs}


@pytest.fixture
def bad_steps(monkeypatch):
    """Spoils the given steps of a run."""

    def make(*steps):
        monkeypatch.setattr(
            "train.loop.train_batches", lambda *arguments: Spoiled(train_batches(*arguments), steps)
        )

    return make


def test_bad_step_is_skipped_and_counted_and_changes_nothing(bad_steps, capsys):
    bad_steps(5, 6)
    summary = train(dataclasses.replace(COMPRESSED, epochs=2.0))
    assert (summary["steps"], summary["skipped_steps"]) == (22, 2)
    assert summary["train_loss"] < 3 and summary["test_accuracy"] > 0.2
    assert "  skipped 2" in capsys.readouterr().err


def test_more_bad_steps_in_a_row_than_allowed_end_the_run(bad_steps):
    bad_steps(5, 6, 7)
    config = dataclasses.replace(COMPRESSED, epochs=2.0, max_skipped_steps=2)
    with pytest.raises(
        DivergedError, match=r"3 steps in a row, up to step 7, .*\(at most 2, --max-skipped-steps\)"
    ):
        train(config)
    bad_steps(5, 6, 8)
    assert train(config)["skipped_steps"] == 3


def test_bad_steps_between_two_looks_at_the_log_are_seen(bad_steps):
    """Six before step 16 and six after it, where the log is written every 16 steps."""
    bad_steps(*range(11, 23))
    config = dataclasses.replace(COMPRESSED, epochs=3.0, log_every_steps=16, max_skipped_steps=11)
    with pytest.raises(DivergedError, match="12 steps in a row, up to step 22"):
        train(config)


def test_the_rate_in_the_log_is_that_of_the_optimizer_also_after_skipped_steps(bad_steps, tmp_path):
    bad_steps(3, 4)
    config = dataclasses.replace(
        COMPRESSED, workdir=str(tmp_path), warmup_epochs=0.8, schedule="constant", log_every_steps=1
    )
    train(config)
    rates = [line["learning_rate"] for line in logged(tmp_path) if "learning_rate" in line]
    # A warm-up of nine steps, of which two are skipped.
    expected = 0.1 * np.minimum([1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9], 9) / 9
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


CORRECTED = {"compressor": "momentum_correction(top_k(0.05))", "momentum": 0.0}


# The fast ones have several settings at once, each of which counts.
@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "float16"},
        {
            **{"compressor": "hierarchical(dense(), top_k(0.05))", "nodes": 2},
            **{"optimizer": "dgc", "masking": False, "clip_norm": 1.0, "weight_decay": 1e-4},
        },
        *slow(
            {
                **{"optimizer": "dgc", "compressor": "top_k(0.05)"},
                **{"clip_norm": 1.0, "weight_decay": 1e-4},
            },
            {"clip_norm": 1.0, "micro_batches": 4},
            CORRECTED | {"clip_norm": 1.0, "micro_batches": 2},
            CORRECTED,
        ),
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_other_settings_learn_too(changes):
    summary = train(dataclasses.replace(COMPRESSED, epochs=4.0, **changes))
    assert summary["test_accuracy"] > 0.5
    assert summary["skipped_steps"] == 0 or changes.get("precision") == "float16"


def test_dense_nodes_train_like_one_network():
    flat, nodes = (
        train(SMALL),
        train(dataclasses.replace(SMALL, nodes=2, compressor="hierarchical(dense(), dense())")),
    )
    assert nodes["test_loss"] == pytest.approx(flat["test_loss"], rel=1e-4)
    assert nodes["dense_bytes_per_step"] == flat["bytes_per_step"]


def test_two_momenta_are_bad_input():
    with pytest.raises(InputError, match=r"compressor: .* momentum before the average"):
        train(dataclasses.replace(SMALL, compressor="momentum_correction(top_k(0.05))"))


def test_ctrl_c_before_the_first_step_leaves_no_traceback(monkeypatch, capsys):
    def prepare_run(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("train.loop.prepare_run", prepare_run)
    assert main([]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_convergence_over_several_epochs(tmp_path):
    train(dataclasses.replace(COMPRESSED, epochs=4.0, workdir=str(tmp_path)))
    losses = [line["test_loss"] for line in logged(tmp_path) if "test_loss" in line]
    assert len(losses) == 4
    assert losses[0] > losses[1] > losses[3]


@pytest.mark.parametrize(
    ("model", "precision"),
    [("lstm", "float32"), pytest.param("transformer", "bfloat16", marks=pytest.mark.slow)],
)
def test_language_model_learns_a_sentence(model, precision, monkeypatch):
    sentence = "the quick brown fox jumps over the lazy dog. "

    def load(data_dir, context, evaluated):
        return make_text("tiny_shakespeare", 100 * sentence, 3 * sentence, context)

    monkeypatch.setitem(DATASETS, "tiny_shakespeare", load)
    text = dataclasses.replace(
        SMALL, dataset="tiny_shakespeare", model=model, context=12, precision=precision
    )
    rate = dataclasses.replace(text, optimizer="adam", learning_rate=0.02, batch_size=32)
    summary = train(dataclasses.replace(rate, compressor="error_feedback(power_sgd(4))"))
    # There are 28 characters. Their frequencies alone, without context, give at least 21.
    assert 1 < summary["test_perplexity"] < 17
    assert summary["bytes_per_step"] < summary["dense_bytes_per_step"] / 4


needs_mnist = pytest.mark.skipif(
    not (
        Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser() / "mnist"
    ).is_dir(),
    reason="MNIST is not prepared; set TFDS_DATA_DIR to where it is",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "compressor", ["error_feedback(two_phase(sign()))", "error_feedback(two_phase(qsgd(4)))"]
)
def test_two_phases_learn_the_digits_as_dense_does(compressor):
    config = dataclasses.replace(SMALL, batch_size=64, epochs=10.0, learning_rate=0.05)
    assert (
        train(dataclasses.replace(config, compressor=compressor))["test_accuracy"]
        > train(config)["test_accuracy"] - 0.02
    )


@needs_mnist
def test_a_prepared_data_set_is_learnt(monkeypatch):
    def load_few(*arguments):
        images = load_dataset(*arguments)
        few = {"train": (images.train, 512), "test": (images.test, 128)}
        return images._replace(
            **{name: Split(*(x[:size] for x in part)) for name, (part, size) in few.items()}
        )

    monkeypatch.setattr("train.loop.load_dataset", load_few)
    config = dataclasses.replace(SMALL, dataset="mnist", epochs=2.0)
    summary = train(dataclasses.replace(config, compressor="error_feedback(top_k(0.01))"))
    assert summary["steps"] == 8
    assert summary["test_accuracy"] > 0.25
    assert summary["bytes_per_step"] < summary["dense_bytes_per_step"] / 5


@pytest.mark.slow
@needs_mnist
def test_compressed_training_on_mnist_stays_near_the_baseline():
    arguments = "--dataset mnist --workers 4 --batch-size 256 --epochs 0.5 --learning-rate 0.05"

    def summary(*compressor: str) -> Summary:
        # With XLA's own flags: here running takes longer than compiling.
        process = start(*arguments.split(), *compressor, flags="")
        return summary_of(finish(process, timeout_seconds=600))

    baseline = summary()
    compressed = summary("--compressor", "error_feedback(top_k(0.01))")
    assert baseline["test_accuracy"] > 0.95
    assert compressed["test_accuracy"] > baseline["test_accuracy"] - 0.03
    assert compressed["bytes_per_step"] < baseline["bytes_per_step"] / 5


@pytest.mark.slow
@needs_mnist
def test_the_mnist_configs_are_within_a_third_of_a_point_of_their_baseline():
    def accuracy(*arguments: str) -> float:
        return summary_of(finish(start(*arguments, flags=""), timeout_seconds=600))["test_accuracy"]

    baseline = accuracy("configs/mnist_dense.yaml")
    for more in ((), ("--compressor", "error_feedback(power_sgd(2))")):
        assert accuracy("configs/mnist_top_k.yaml", *more) >= max(0.985, baseline - 0.003)


@pytest.mark.parametrize("optimizer", ["onebit_adam", *slow("zero_one_adam")])
def test_the_final_bytes_of_an_optimizer_that_begins_dense_are_those_of_its_momentum(optimizer):
    config = dataclasses.replace(
        SMALL, optimizer=optimizer, freeze_step=2, learning_rate=0.001, epochs=0.3
    )
    summary = train(dataclasses.replace(config, compressor="error_feedback(sign())"))
    assert summary["bytes_per_step"] >= summary["dense_bytes_per_step"]
    assert summary["final_bytes_per_step"] < summary["dense_bytes_per_step"] / 4


def test_an_optimizer_that_sends_its_momentum_needs_an_error_memory():
    config = dataclasses.replace(SMALL, optimizer="onebit_adam", compressor="sign()")
    with pytest.raises(InputError, match=r"needs an error memory; got sign\(\)"):
        train(config)


def test_dgc_refuses_a_second_memory():
    config = dataclasses.replace(SMALL, optimizer="dgc", compressor="error_feedback(top_k(0.01))")
    with pytest.raises(InputError, match="dgc has an error memory of its own"):
        train(config)
