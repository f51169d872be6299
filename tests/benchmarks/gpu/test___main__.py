"""Steps run in order, are recorded when they end, and go on after they were stopped."""

import json
import time
from pathlib import Path

import pytest

from benchmarks.common import results
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.__main__ import Options, main
from benchmarks.gpu.steps import ENDED, NAMES, TRAINED, Step, steps

SUMMARY = {"test_accuracy": 0.5, "seconds": 2.0}


@pytest.fixture
def called(tmp_path, monkeypatch):
    """Runs three steps, each a line of Python; returns the file where they write their names."""
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(gpu, "environment", lambda: {"device": "a card", "commit": "abc"})
    # They would go into the pages.
    monkeypatch.setattr(gpu, "write_tables", lambda: None)
    file = tmp_path / "called"

    def step(name, line, *, trains=False):
        text = f"import time; print('{name}', file=open({str(file)!r}, 'a'), flush=True); {line}"
        return Step(name, ("-c", text), trains=trains)

    made = [
        step(NAMES[0], "print('fine')"),
        step(NAMES[1], "raise SystemExit(3)"),
        step("resnet18 dense", f"print('''{json.dumps(SUMMARY)}''')", trains=True),
    ]
    monkeypatch.setattr(gpu, "steps", lambda runs, torch_python, epochs: made)
    return file


def test_steps_that_succeeded_are_not_repeated(called, capsys):
    assert main(Options(minutes=5, any_device=True)) == 1
    names = [NAMES[0], NAMES[1], "resnet18 dense"]
    assert called.read_text().splitlines() == names
    assert [(row["step"], row["exit_status"]) for row in ENDED.read()] == [
        (NAMES[0], "0"),
        (NAMES[1], "3"),
        ("resnet18 dense", "0"),
    ]
    (trained,) = TRAINED.read()
    assert (trained["test_accuracy"], trained["device"]) == ("0.5", "a card")
    shown = capsys.readouterr().out
    assert f"| {NAMES[1]} | with exit status 3 |" in shown
    assert f"| {NAMES[0]} | well |" in shown

    # Only the step that failed runs again.
    assert main(Options(minutes=5, any_device=True)) == 1
    assert called.read_text().splitlines() == [*names, NAMES[1]]
    assert main(Options(minutes=5, any_device=True, again=True, only=("resnet18 dense",))) == 0
    assert called.read_text().splitlines() == [*names, NAMES[1], "resnet18 dense"]


def test_a_step_with_other_arguments_is_another_one(called, monkeypatch, capsys):
    made = [Step(NAMES[0], ("-c", "print('short')")), Step(NAMES[0], ("-c", "print('long')"))]
    for step in made:
        monkeypatch.setattr(gpu, "steps", lambda *_, step=step: [step])
        assert main(Options(minutes=5, any_device=True)) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line in ("short", "long")] == ["short", "long"]
    assert [row["arguments"] for row in ENDED.read()] == [step.line for step in made]


def test_the_place_of_pytorch_is_no_other_argument():
    one, other, none = (
        [step.line for step in steps(Path("runs"), python, 100)]
        for python in (Path("/one/bin/python"), Path("/other/bin/python"), None)
    )
    assert one == other
    assert {a for a, b in zip(one, none, strict=True) if a != b} == {one[1], one[2]}


def test_a_step_is_stopped_in_time_and_goes_on_with_the_next_call(called, monkeypatch):
    text = "import signal, time\nsignal.signal(15, lambda *_: exit(143))\ntime.sleep(60)"
    monkeypatch.setattr(gpu, "steps", lambda *_: [Step(NAMES[0], ("-c", text))])
    monkeypatch.setattr(gpu, "LEAST_SECONDS", 1)
    monkeypatch.setattr(gpu, "SECONDS_TO_STOP", 0)
    for _ in range(2):
        begin = time.monotonic()
        assert main(Options(minutes=1 / 30, any_device=True)) == 0
        assert time.monotonic() - begin > 1
        assert ENDED.read() == []


def test_a_step_that_ignores_the_first_signal_gets_another(called, monkeypatch):
    text = "import signal, time\nsignal.signal(15, lambda *_: signal.signal(15, signal.SIG_DFL))"
    monkeypatch.setattr(
        gpu, "steps", lambda *_: [Step(NAMES[0], ("-c", text + "\ntime.sleep(60)"))]
    )
    monkeypatch.setattr(gpu, "LEAST_SECONDS", 0)
    monkeypatch.setattr(gpu, "SECONDS_TO_STOP", 1)
    begin = time.monotonic()
    assert main(Options(minutes=2 / 60, any_device=True)) == 0
    assert time.monotonic() - begin < 30
    assert ENDED.read() == []


def test_nothing_starts_without_time_to_save_something(called):
    assert main(Options(minutes=1, any_device=True)) == 0
    assert not called.exists()


def test_without_a_gpu_it_says_so(called, capsys):
    assert main(Options()) == 2
    assert "needs a GPU, and JAX has found" in capsys.readouterr().err
    assert not called.exists()


@pytest.mark.parametrize("minutes", [-1.0, float("nan"), float("inf")])
def test_minutes_that_are_no_time_are_refused(minutes):
    with pytest.raises(ValueError, match="minutes must be at least 0 and finite"):
        Options(minutes=minutes)


def test_every_training_run_has_a_config_and_a_folder_of_its_own(tmp_path):
    training = [step for step in steps(tmp_path, None, 100) if step.trains]
    folders = {step.arguments[step.arguments.index("--workdir") + 1] for step in training}
    assert len(training) == len(folders) == 4
    for step in training:
        assert (gpu.REPOSITORY / step.arguments[2]).exists()


def test_steps_keep_their_compiled_programs(called, monkeypatch, capsys):
    show = "import os; print(os.environ['JAX_COMPILATION_CACHE_DIR'])"
    monkeypatch.setattr(gpu, "steps", lambda *_: [Step(NAMES[0], ("-c", show))])
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    main(Options(minutes=5, any_device=True))
    assert "runs/compiled\n" in capsys.readouterr().out
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    main(Options(minutes=5, any_device=True, again=True))
    assert "elsewhere\n" in capsys.readouterr().out
