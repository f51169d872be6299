"""``--compressor auto``: the plan is followed, saved with the run, and refused where it cannot be
made.
"""

import dataclasses

import pytest
from train_helpers import ALONE, StopAfter, summary_of, train_together

import jaxcompress
from jaxcompress.planning.plan import CANDIDATES
from train.config import Config
from train.errors import InputError
from train.loop import train
from train.signals import InterruptedRunError

AUTO = Config(**ALONE, workers=8, epochs=0.5, compressor="auto")
TOP = jaxcompress.error_feedback(jaxcompress.top_k(0.01))


@pytest.fixture
def chooses(monkeypatch):
    """The plan chooses one of these compressors, whatever it measures; what it was given."""
    given = []

    class Found:
        compressor = TOP

    def plan(*arguments, **named):
        given.append((arguments, named))
        return Found

    monkeypatch.setattr(jaxcompress, "plan", plan)
    return given


def test_the_choice_is_trained_with_and_kept_when_the_run_is_resumed(
    chooses, tmp_path, monkeypatch
):
    config = dataclasses.replace(AUTO, workdir=str(tmp_path / "run"), checkpoint_every_steps=1)
    with pytest.raises(InterruptedRunError):
        train(config, StopAfter(3))
    assert len(chooses) == 1
    resumed = train(config)
    assert len(chooses) == 1, "a resumed run plans again"
    assert resumed["compressor"] == "error_feedback(top_k(0.01))"
    named = dataclasses.replace(AUTO, compressor="error_feedback(top_k(0.01))")
    whole = train(named)
    assert resumed["test_loss"] == whole["test_loss"]
    assert resumed["bytes_per_step"] == whole["bytes_per_step"]


def test_a_run_with_another_compressor_is_not_resumed_by_a_name(chooses, tmp_path):
    config = dataclasses.replace(AUTO, workdir=str(tmp_path / "run"))
    train(config)
    with pytest.raises(InputError, match="compressor"):
        train(dataclasses.replace(config, compressor="dense()"))


def test_the_plan_is_of_the_run(chooses):
    train(AUTO)
    ((_, optimizer, params, batch, mesh), named) = chooses[0]
    assert mesh.shape == {"data": 8}
    assert batch["inputs"].shape[0] == AUTO.batch_size
    assert named["axis_name"] == "data" and named["micro_batches"] == 1
    state = jaxcompress.init_state(optimizer(TOP), params, mesh)
    assert jaxcompress.monitor_metrics(state)


@pytest.mark.slow
def test_two_processes_follow_one_plan():
    """The real plan, which measures."""
    arguments = ("--epochs", "0.5", "--workers", "2", "--compressor", "auto")
    one, two = train_together(arguments, arguments)
    assert summary_of(one)["compressor"] in [repr(candidate) for candidate in CANDIDATES]
    assert two.returncode == 0
    assert "measuring links and steps" in one.stderr and "measuring" not in two.stderr


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"vmap": True}, "vmap=True, whose workers send nothing"),
        ({"fsdp": 2}, "fsdp=2"),
        ({"period": 5}, "period=5, since it plans for an average in every step"),
        ({"optimizer": "dgc"}, "optimizer=dgc"),
        ({"optimizer": "onebit_adam", "freeze_step": 1}, "optimizer=onebit_adam"),
    ],
)
def test_runs_that_cannot_be_planned_are_refused(changes, field):
    with pytest.raises(InputError, match=f"compressor=auto cannot be used with {field}"):
        train(dataclasses.replace(AUTO, **changes))
