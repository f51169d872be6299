"""Checkpoints: all state is restored, and damaged checkpoints are found, reported and kept."""

import pickle
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import slow
from jax.experimental import multihost_utils
from train_helpers import ALONE

import jaxcompress
from jaxcompress.distributed.placement import as_numpy
from train.checkpoint import Checkpoints, check_same_run
from train.checksums import CHECKSUM_FILE
from train.config import Config
from train.errors import InputError
from train.loop import train
from train.startup import find_progress, saved_settings

STEPS = (10, 20, 30)


@pytest.fixture(scope="module")
def state():
    """The state of a compressed optimizer with parameters, some of it sharded."""
    mesh = jaxcompress.data_mesh(4)
    params = jaxcompress.replicate({"kernel": jnp.arange(4096.0).reshape(64, 64)}, mesh)
    optimizer = optax.chain(
        jaxcompress.compress(jaxcompress.error_feedback(jaxcompress.top_k(0.01))), optax.adam(1e-3)
    )
    return {
        "params": params,
        "opt_state": jaxcompress.init_state(optimizer, params, mesh),
        "empty": {},
    }


@pytest.fixture
def saved(tmp_path, state):
    """A workdir with the checkpoints of three steps."""
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in STEPS:
        checkpoints.save(step, state, {"step": step})
    return tmp_path


def damage(workdir, step: int) -> None:
    """Flips one bit in the largest file of a checkpoint."""
    files = [path for path in (workdir / "checkpoints" / str(step)).rglob("*") if path.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)


def test_saving_asks_jax_with_no_number_of_its_own(tmp_path, state, monkeypatch):
    # JAX would take the step for the count of `ReceivedSignal`, and stop the run much later.
    asked = []
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", asked.append)
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in STEPS:
        checkpoints.save(step, state, {"step": step})
    assert not asked


def test_empty_workdir_has_no_record(tmp_path):
    assert Checkpoints(tmp_path, keep=1).read_record() is None


def test_state_is_restored_bit_for_bit_with_its_sharding(saved, state):
    checkpoints = Checkpoints(saved, keep=3)
    back = checkpoints.restore(state)
    assert checkpoints.read_record() == {"step": 30}
    assert jax.tree.structure(back) == jax.tree.structure(state)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(state), strict=True):
        assert one.dtype == other.dtype
        assert one.sharding.is_equivalent_to(other.sharding, one.ndim)
        np.testing.assert_array_equal(as_numpy(one), as_numpy(other))


def test_the_state_of_another_version_is_an_error_in_one_line(saved, state):
    other = {**state, "params": {"kernel": state["params"]["kernel"], "bias": jnp.zeros(3)}}
    with pytest.raises(InputError, match=r"checkpoint of step 30 in .* has another state than"):
        Checkpoints(saved, keep=3).restore(other)


def test_the_progress_of_a_newer_version_is_refused(tmp_path, state):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(1, state, {"settings": {}, "progress": {"step": 1, "mood": "good"}})
    with pytest.raises(InputError, match="not of this program, or of a newer version"):
        find_progress(tmp_path, checkpoints, {"compressor": "dense()"})


def test_only_the_latest_are_kept(saved, state):
    Checkpoints(saved, keep=2).save(40, state, {"step": 40})
    assert sorted(path.name for path in (saved / "checkpoints").iterdir()) == ["30", "40"]


def test_an_old_checkpoint_that_cannot_be_removed_is_reported_and_stays(
    saved, state, capsys, monkeypatch
):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    checkpoints = Checkpoints(saved, keep=2)
    checkpoints.save(40, state, {"step": 40})
    assert checkpoints.newest_step == 40
    reported = capsys.readouterr().err
    assert reported.count("the old checkpoint") == 2 and "Permission denied" in reported
    monkeypatch.undo()
    checkpoints.save(50, state, {"step": 50})
    assert sorted(path.name for path in (saved / "checkpoints").iterdir()) == ["40", "50"]
    assert Checkpoints(saved, keep=2).read_record() == {"step": 50}


def test_damaged_checkpoint_falls_back_to_the_previous_one(saved, capsys):
    damage(saved, 30)
    assert Checkpoints(saved, keep=3).read_record() == {"step": 20}
    reported = capsys.readouterr().err
    assert "step 30 cannot be used" in reported
    assert "has changed since it was written" in reported
    assert (saved / "unreadable" / "30").is_dir()


def test_missing_file_falls_back_too(saved, capsys):
    (saved / "checkpoints" / "30" / "record" / "metadata").unlink()
    assert Checkpoints(saved, keep=3).newest_step == 20
    assert "is missing" in capsys.readouterr().err


def test_incomplete_checkpoint_is_moved_aside(saved, capsys):
    (saved / "checkpoints" / "30" / CHECKSUM_FILE).unlink()
    assert Checkpoints(saved, keep=3).newest_step == 20
    assert "it was not saved to its end" in capsys.readouterr().err


def test_run_killed_in_its_first_save_starts_again(saved, capsys):
    for step in STEPS:
        (saved / "checkpoints" / str(step) / CHECKSUM_FILE).unlink()
    assert Checkpoints(saved, keep=3).newest_step is None
    assert capsys.readouterr().err.count("it was not saved to its end") == 3


def test_same_step_can_be_saved_and_damaged_twice(saved, state):
    for _ in range(2):
        damage(saved, 30)
        Checkpoints(saved, keep=3).save(30, state, {"step": 30})
    assert Checkpoints(saved, keep=3).newest_step == 30
    assert len(list((saved / "unreadable").iterdir())) == 2


def test_no_readable_checkpoint_is_an_error_that_changes_nothing(saved):
    for step in STEPS:
        damage(saved, step)
    with pytest.raises(
        InputError, match=r"no checkpoint in .* can be read: step 30: .* step 20: .* step 10: "
    ):
        Checkpoints(saved, keep=3)
    assert sorted(path.name for path in (saved / "checkpoints").iterdir()) == ["10", "20", "30"]


def test_file_in_place_of_the_folder_is_reported(tmp_path):
    (tmp_path / "checkpoints").touch()
    with pytest.raises(InputError, match=r"folder of checkpoints .* cannot be used: .*File exists"):
        Checkpoints(tmp_path, keep=3)


def test_another_run_is_named_field_by_field(tmp_path):
    before = {"model": "resnet8", "workers": 4, "decay_epochs": [1.0]}
    check_same_run(tmp_path, before, {"model": "resnet8", "workers": 4, "decay_epochs": (1.0,)})
    with pytest.raises(
        InputError, match="model was 'resnet8', is now 'resnet20'; workers was 4, is now 2"
    ):
        check_same_run(
            tmp_path, before, {"model": "resnet20", "workers": 2, "decay_epochs": (1.0,)}
        )


@pytest.mark.parametrize("optimizer", ["onebit_adam", *slow("onebit_lamb", "zero_one_adam")])
def test_a_run_that_sends_its_momentum_from_a_fixed_step_on_is_saved(optimizer, tmp_path):
    """Their states had arrays without entries, which Orbax does not save."""
    config = Config(
        **ALONE, workers=2, vmap=True, epochs=0.4, optimizer=optimizer, freeze_step=2,
        learning_rate=1e-3, compressor="error_feedback(sign())", workdir=str(tmp_path),
    )  # fmt: skip
    summary = train(config)
    assert train(config) == summary
    assert Checkpoints(tmp_path, keep=3).newest_step == 4


def test_setting_that_the_checkpoint_lacks_had_its_default(tmp_path, state):
    checkpoints = Checkpoints(tmp_path, keep=3)
    before = saved_settings(Config(), "dense()", 4)
    before.pop("masking")
    checkpoints.save(10, state, {"settings": before, "progress": {}})
    find_progress(tmp_path, checkpoints, saved_settings(Config(), "dense()", 4))
    with pytest.raises(InputError, match="masking was True, is now False"):
        find_progress(tmp_path, checkpoints, saved_settings(Config(masking=False), "dense()", 4))


def test_nothing_is_unpickled_when_a_checkpoint_is_read(tmp_path, state, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(10, state, {"settings": {}, "progress": {}})

    def refuse(*_, **__):
        raise AssertionError("unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    again = Checkpoints(tmp_path, keep=3)
    assert again.read_record() == {"settings": {}, "progress": {}}
    assert jax.tree.structure(again.restore(state)) == jax.tree.structure(state)
