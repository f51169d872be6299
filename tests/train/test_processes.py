"""Several processes, with gloo on 127.0.0.1: results equal to one process, and shared errors."""

import shutil
import time

import numpy as np
import pytest
from jax.experimental import multihost_utils
from train_helpers import (
    ALONE,
    SMALL,
    summary_of,
    train,
    train_together,
    without_time,
)

from benchmarks.faults.saved import saved_arrays
from train.__main__ import main
from train.config import Config
from train.errors import EXIT_CODE_FAULT, InputError
from train.loop import train as run_here
from train.processes import raise_on_all_processes, waiting_line

TWO_EPOCHS = (*SMALL, "--epochs", "2")

# The tests of this group share the run of one process.
same_run = pytest.mark.xdist_group("one process")


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """The workdir and the summary of one process with two devices."""
    workdir = tmp_path_factory.mktemp("one")
    return workdir, summary_of(train(*TWO_EPOCHS, "--workdir", str(workdir)))


# Fast are two processes from the start in other meshes, below, and these two from a checkpoint on.
@pytest.mark.slow
@same_run
def test_two_processes_equal_one_process_with_two_devices(tmp_path, one_process):
    assert_ends_as_one(tmp_path, *one_process)


def assert_ends_as_one(tmp_path, workdir, expected):
    """Two processes train in the first folder, and end as one did in the second; what the main
    process reported.
    """
    arguments = (*TWO_EPOCHS, "--workdir", str(tmp_path))
    main, other = train_together(arguments, arguments)
    assert without_time(summary_of(main)) == without_time(expected)
    # A sum of two numbers does not depend on their order, so the parameters are bit-identical.
    found, wanted = saved_arrays(tmp_path, 22), saved_arrays(workdir, 22)
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)
    assert other.returncode == 0, other.stderr
    assert main.stderr.startswith("waiting for 1 other process at 127.0.0.1:")
    assert "test_accuracy" not in other.stdout + other.stderr
    return main.stderr


def test_processes_of_four_devices_share_a_sharded_model(tmp_path):
    """Two processes of four devices each, which hold one copy of the model."""
    arguments = (*SMALL, "--fsdp", "4", "--epochs", "1", "--min-compression-rate", "0")
    config = Config(
        **ALONE,
        workers=2,
        compressor="error_feedback(block_top_k(0.01))",
        fsdp=4,
        epochs=1.0,
        min_compression_rate=0.0,
    )
    expected = run_here(config)
    in_two = (*arguments, "--workdir", str(tmp_path))
    main, other = train_together(in_two, in_two)
    found = summary_of(main)
    assert other.returncode == 0, other.stderr
    for name in ("train_loss", "test_loss"):
        assert found[name] == pytest.approx(expected[name], rel=1e-5)
    for name in ("workers", "bytes_per_step", "dense_bytes_per_step", "steps"):
        assert found[name] == expected[name]
    assert (tmp_path / "checkpoints" / "11").is_dir()


@same_run
def test_two_processes_resume_the_run_of_one(tmp_path, one_process):
    workdir, expected = one_process
    shutil.copytree(workdir, tmp_path, dirs_exist_ok=True)
    # Without checksums the last checkpoint is incomplete, as if the process was killed in saving.
    (tmp_path / "checkpoints" / "22" / "sha256.json").unlink()
    assert "resumes after step 11" in assert_ends_as_one(tmp_path, workdir, expected)


@pytest.mark.slow
def test_each_process_can_be_a_node_of_several_workers():
    between_nodes = "error_feedback(hierarchical(dense(), top_k(0.05)))"
    arguments = (*SMALL, "--workers", "4", "--nodes", "2", "--compressor", between_nodes)
    arguments = (*arguments, "--epochs", "1")
    main, _ = train_together(arguments, arguments)
    found, expected = summary_of(main), summary_of(train(*arguments))
    assert found["bytes_per_step"] == expected["bytes_per_step"] < found["dense_bytes_per_step"]
    # Within a node gloo may add in another order than one process does.
    assert found["test_loss"] == pytest.approx(expected["test_loss"], rel=1e-3)


@pytest.mark.parametrize(
    ("field", "option", "values"),
    [
        (
            "compressor",
            "--compressor",
            ("error_feedback(top_k(0.01))", "error_feedback(top_k(0.02))"),
        ),
        pytest.param("workers", "--workers", ("2", "4"), marks=pytest.mark.slow),
    ],
)
def test_different_configs_are_reported_by_all_before_any_step(field, option, values):
    results = train_together(*[(*TWO_EPOCHS, option, value) for value in values])
    for result in results:
        assert result.returncode == 2, result.stderr
        assert field in result.stderr
        assert "process 0: " in result.stderr
        assert "process 1: " in result.stderr
        assert "step 1/" not in result.stderr
        assert "Traceback" not in result.stderr


def test_processes_that_jax_detects_say_that_they_wait(monkeypatch, capsys):
    monkeypatch.setattr("train.processes.LATE_SECONDS", 0.01)
    with waiting_line(Config()):
        time.sleep(0.5)
    assert capsys.readouterr().err == "waiting for the other processes of this cluster\n"
    with waiting_line(Config(num_processes=1)):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_processes_that_join_soon_say_nothing(capsys):
    with waiting_line(Config()):
        pass
    assert capsys.readouterr().err == ""


def test_given_processes_say_at_once_that_they_wait(capsys):
    with waiting_line(Config(num_processes=3, coordinator="10.0.0.1:1234", process_id=0)):
        assert capsys.readouterr().err == "waiting for 2 other processes at 10.0.0.1:1234\n"


def test_failing_process_raises_its_own_error():
    with pytest.raises(ZeroDivisionError), raise_on_all_processes():
        1 / 0  # noqa: B018


def test_error_of_another_process_ends_this_one(monkeypatch):
    monkeypatch.setattr(
        multihost_utils, "process_allgather", lambda failed: np.array([failed, True])
    )
    with pytest.raises(InputError, match="process 1 cannot go on"), raise_on_all_processes():
        pass


# The next test has an error of one process that ends both, too.
@pytest.mark.slow
def test_folder_that_only_one_process_cannot_use_ends_both(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    arguments = (*TWO_EPOCHS, "--workdir", str(tmp_path))
    main, other = train_together(arguments, arguments)
    assert (main.returncode, other.returncode) == (2, 2)
    assert "Is a directory" in main.stderr
    assert "process 0 cannot go on" in other.stderr


def test_workdirs_that_are_not_shared_are_reported(tmp_path):
    main, other = train_together(
        *[(*TWO_EPOCHS, "--workdir", str(tmp_path / name)) for name in ("a", "b")]
    )
    assert (main.returncode, other.returncode) == (2, 2)
    assert "process 1 cannot go on" in main.stderr
    assert "is not the folder that process 0 writes" in other.stderr


@pytest.mark.parametrize("error", [OSError("process 0 cannot listen"), TimeoutError("late")])
def test_a_port_or_another_process_that_is_not_ready_is_a_fault(monkeypatch, capsys, error):
    """The same command may succeed later, so a supervisor starts it again."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("jaxcompress.initialize_processes", fail)
    cluster = ("--coordinator", "127.0.0.1:1", "--num-processes", "2", "--process-id", "0")
    assert main([*SMALL, *cluster]) == EXIT_CODE_FAULT
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {error}"


def test_collective_that_fails_while_all_processes_live_is_a_fault(monkeypatch, capsys):
    def fail(*_):
        raise ValueError("UNKNOWN: Gloo all-reduce failed: Connection reset by peer")

    monkeypatch.setattr("train.__main__.train", fail)
    assert main([]) == EXIT_CODE_FAULT
    assert capsys.readouterr().err.startswith("error: a collective has failed: UNKNOWN: Gloo")


def test_bug_keeps_its_traceback(monkeypatch, capsys):
    monkeypatch.setattr("train.__main__.train", lambda *_: 1 / 0)
    assert main([]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
