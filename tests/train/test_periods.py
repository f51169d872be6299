"""Training with a period: bytes, evaluation, interruption in the middle, and other workers."""

import dataclasses
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import slow
from train_helpers import ALONE, SMALL, StopAfter, logged, summary_of, train_together, without_time
from train_helpers import train as train_in_a_process

from benchmarks.faults.saved import saved_arrays
from jaxcompress import PerWorker
from train.config import Config
from train.config_rules import check_config
from train.data.batches import train_batches
from train.errors import InputError
from train.loop import train
from train.restoring import restore_state
from train.signals import InterruptedRunError

# One process runs them all, so that it compiles once.
pytestmark = pytest.mark.xdist_group("a period")

# An epoch of the digits has 11 steps of 128 images: two periods and a step. Workers that share a
# device take the same steps, and compile faster.
PERIOD = Config(
    **ALONE,
    workers=8,
    vmap=True,
    period=5,
    epochs=1.0,
    optimizer="adam",
    learning_rate=3e-3,
    compressor="error_feedback(block_top_k(0.05))",
    log_every_steps=4,
)


def interrupt(config: Config, steps: int) -> None:
    with pytest.raises(InterruptedRunError, match="stopped after step"):
        train(config, StopAfter(steps))


def steps_with(workdir: Path, name: str) -> list[int]:
    return [line["step"] for line in logged(workdir) if name in line]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run of 22 steps with a checkpoint at every synchronisation, and its summary."""
    workdir = tmp_path_factory.mktemp("run")
    config = dataclasses.replace(PERIOD, epochs=2.0, checkpoint_every_steps=1)
    config = dataclasses.replace(config, eval_every_epochs=0.1, keep_checkpoints=9)
    config = dataclasses.replace(config, workdir=str(workdir))
    return config, train(config)


def test_it_is_evaluated_and_saved_where_workers_synchronise_and_after_the_last_step(uninterrupted):
    config, summary = uninterrupted
    workdir = Path(config.workdir)
    assert steps_with(workdir, "test_loss") == [5, 10, 15, 20, 22]
    saved = {int(path.name) for path in (workdir / "checkpoints").iterdir()}
    assert saved == {5, 10, 15, 20, 22}
    assert summary["steps"] == 22


def test_bytes_are_those_of_a_synchronisation_over_the_period(uninterrupted):
    config, summary = uninterrupted
    every_step = train(dataclasses.replace(PERIOD, period=None, epochs=0.1))
    # After 5, 10, 15, 20 and 22 steps.
    assert summary["bytes_per_step"] == pytest.approx(summary["peak_bytes_per_step"] * 5 / 22)
    # The weights of the workers are 4 bytes more; loss, accuracy and their like are not averaged.
    assert summary["peak_bytes_per_step"] == pytest.approx(every_step["bytes_per_step"], abs=64)
    assert every_step["peak_bytes_per_step"] == every_step["bytes_per_step"]
    assert summary["dense_bytes_per_step"] == every_step["dense_bytes_per_step"]
    sent = {
        line["step"]: line["bytes_sent"]
        for line in logged(Path(config.workdir))
        if "bytes_sent" in line
    }
    assert sent[20] == 4 * summary["peak_bytes_per_step"]
    assert sent[22] == 5 * summary["peak_bytes_per_step"]


def test_the_last_step_ends_its_period():
    """Without it the parameters were those at the start, which know one digit of ten."""
    config = dataclasses.replace(
        PERIOD, period=1000, epochs=4.0, outer_optimizer="sgd", outer_learning_rate=1.0
    )
    assert train(dataclasses.replace(config, compressor="dense()"))["test_accuracy"] > 0.5


def test_a_finished_run_says_that_it_is(uninterrupted, capsys):
    config, summary = uninterrupted
    assert train(config) == summary
    assert "had finished after step 22: nothing was trained." in capsys.readouterr().err


def test_hierarchical_averages_have_no_period():
    config = dataclasses.replace(PERIOD, compressor="hierarchical(dense(), top_k(0.1))")
    with pytest.raises(InputError, match="Make a node one worker of several devices, by --fsdp"):
        train(config)


@pytest.mark.parametrize("steps", [3, *slow(5)])
def test_a_run_stopped_in_a_period_or_at_its_end_ends_bit_identical(steps, uninterrupted, tmp_path):
    config, summary = uninterrupted
    again = dataclasses.replace(config, workdir=str(tmp_path))
    interrupt(again, steps)
    assert (tmp_path / "checkpoints" / str(steps)).is_dir()
    assert without_time(train(again)) == without_time(summary)
    found, expected = saved_arrays(tmp_path, 22), saved_arrays(Path(config.workdir), 22)
    assert found.keys() == expected.keys()
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


@pytest.fixture
def restored(monkeypatch):
    """The states that runs restore, on the host."""
    states = []

    def record(*arguments):
        state = restore_state(*arguments)
        states.append(jax.device_get(state))
        return state

    monkeypatch.setattr("train.loop.restore_state", record)
    # Eight devices exist already; some of them make a mesh, too.
    monkeypatch.setattr("jaxcompress.virtual_cpu_workers", lambda workers: None)
    return states


def rows_of(tree):
    """The floating arrays of all `PerWorker` parts, by path."""
    nodes = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, PerWorker))
    return {
        jax.tree_util.keystr(path + inner): np.float64(x)
        for path, node in nodes
        if isinstance(node, PerWorker)
        for inner, x in jax.tree_util.tree_leaves_with_path(node.value)
        if np.issubdtype(x.dtype, np.floating)
    }


@pytest.mark.parametrize(
    ("period", "vmap"),
    [
        pytest.param(5, False, id="period, devices", marks=pytest.mark.slow),
        pytest.param(None, True, id="every step, vmap", marks=pytest.mark.slow),
    ],
)
def test_a_run_resumes_with_other_workers_and_keeps_the_means(
    period, vmap, tmp_path, restored, capsys
):
    config = dataclasses.replace(
        PERIOD, period=period, vmap=vmap, epochs=3.0, workdir=str(tmp_path), keep_checkpoints=9
    )
    path = [(8, 3), (4, 2), (2, 3), (8, None)]
    for workers, steps in path:
        one = dataclasses.replace(config, workers=workers)
        if steps is None:
            summary = train(one)
        else:
            interrupt(one, steps)
    assert (summary["workers"], summary["steps"]) == (8, 33)
    assert summary["test_accuracy"] > 0.5
    reported = capsys.readouterr().err
    for now, before in ((4, 8), (2, 4), (8, 2)):
        assert f"with {now} workers instead of {before} (what each worker keeps" in reported
    for state, step, workers in zip(restored, (3, 5, 8), (4, 2, 8), strict=True):
        saved = saved_arrays(tmp_path, step)
        rows = rows_of(state)
        assert len(rows) > 6
        for name, x in rows.items():
            assert x.shape[0] == workers
            (before,) = (y for key, y in saved.items() if _same(key, name))
            np.testing.assert_allclose(
                x.mean(axis=0), np.float64(before).mean(axis=0), rtol=1e-5, atol=1e-7
            )


def _same(saved: str, name: str) -> bool:
    """Whether two paths name one array: Orbax writes fields and indices in its own way."""
    words = [[x for x in re.findall(r"\w+", path) if x != "value"] for path in (saved, name)]
    return words[0] == words[1]


def test_two_processes_take_the_steps_of_one_and_their_run_is_resumed_by_one(tmp_path):
    arguments = (*SMALL, "--period", "4", "--epochs", "1", "--checkpoint-every-steps", "4")
    arguments = (*arguments, "--workdir", str(tmp_path))
    main, other = train_together(arguments, arguments)
    found = summary_of(main)
    assert other.returncode == 0, other.stderr
    expected = summary_of(train_in_a_process(*arguments[:-2]))
    assert without_time(found) == without_time(expected)
    # Without checksums the last checkpoint is incomplete, as if the process was killed in saving.
    (tmp_path / "checkpoints" / "11" / "sha256.json").unlink()
    resumed = train_in_a_process(*arguments, "--workers", "1")
    assert "resumes after step 8 with 1 workers instead of 2" in resumed.stderr
    assert summary_of(resumed)["test_loss"] < 3


@pytest.mark.slow
def test_steps_that_a_worker_skips_are_counted_and_other_workers_can_go_on(monkeypatch, tmp_path):

    class Batches:
        """The batches of a run, of which one worker's are NaN in two steps."""

        def __init__(self, *arguments):
            self._inner, self._step = train_batches(*arguments), 0
            self.get_state = self._inner.get_state

        def __next__(self):
            batch, self._step = next(self._inner), self._step + 1
            inputs = np.array(batch["inputs"])
            inputs[:2] = np.nan if self._step in (4, 5) else inputs[:2]
            return batch | {"inputs": inputs}

    monkeypatch.setattr("train.loop.train_batches", Batches)
    config = dataclasses.replace(PERIOD, epochs=4.0, workdir=str(tmp_path))
    interrupt(config, 7)
    monkeypatch.undo()
    summary = train(dataclasses.replace(config, workers=4))
    assert (summary["steps"], summary["skipped_steps"]) == (44, 2)
    assert summary["train_loss"] < 2 and summary["test_accuracy"] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "muon", "learning_rate": 0.02, "weight_decay": 0.01},
        {"optimizer": "sgd", "learning_rate": 0.05, "clip_norm": 1.0},
        {"vmap": False, "workers": 2, "fsdp": 4, "precision": "bfloat16"},
        {"model": "resnet8", "workers": 2},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_other_settings_learn_too(changes, monkeypatch):
    monkeypatch.setattr("jaxcompress.virtual_cpu_workers", lambda workers: None)
    summary = train(dataclasses.replace(PERIOD, epochs=8.0, **changes))
    assert summary["test_accuracy"] > 0.5
    assert summary["skipped_steps"] == 0


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"optimizer": "dgc"}, "dgc averages in every step. Use --optimizer sgd, rmsprop"),
        ({"optimizer": "onebit_adam"}, "onebit_adam averages in every step"),
        ({"precision": "float16"}, "Use --precision bfloat16"),
        ({"nodes": 2, "vmap": False}, "with period all workers average together; got nodes=2"),
        ({"bucket_mib": 4.0}, "bucket_mib sends gradients during the backward pass"),
    ],
)
def test_settings_that_do_not_fit_are_reported(changes, reported):
    with pytest.raises(InputError) as error:
        check_config(dataclasses.replace(PERIOD, **changes))
    assert reported in str(error.value)
