"""What a run prints: short lines on standard error, and one line of JSON on standard output."""

import io
import json
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from train_helpers import ALONE, logged

import jaxcompress
from train.__main__ import main
from train.config import Config
from train.console import ProgressDisplay, Reporter
from train.metrics import Summary
from train.program import BytesPerStep
from train.progress import Progress
from train.startup import Run

LONG_NAME = "a very long name of a run, " * 10
OPTIONS = ALONE | {
    "workers": 8,
    "epochs": 1,
    "log_every_steps": 4,
    "name": LONG_NAME,
    "compressor": "error_feedback(top_k(0.05))",
}
SENT = BytesPerStep(2512.0, 2512.0, 92_944.0, 2512.0)

WITH_A_COLUMN = ("train_loss", "train_accuracy", "bytes_sent", "steps_per_second", "learning_rate")

# The tests of this group share a run.
same_run = pytest.mark.xdist_group("printed")


def command(**changes) -> list[str]:
    """The command line of a run of 11 steps."""
    options = OPTIONS | changes
    return [f"--{field.replace('_', '-')}={value}" for field, value in options.items()]


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        """As a terminal says."""
        return True


def run_of(config: Config, step: int = 0, saved_workers: int = 2, compressor: Any = None) -> Run:
    """A run of two workers, as far as it is reported."""
    compressor = compressor or jaxcompress.dense()
    settings = {"compressor": jaxcompress.unparse(compressor)}
    mesh = jaxcompress.VirtualMesh(2)
    progress: Any = Progress(step=step)
    watchdog: Any = None
    return Run(
        config,
        compressor,
        mesh,
        "data",
        settings,
        None,
        None,
        progress,
        saved_workers,
        watchdog,
    )


def introduced(run: Run, capsys, sent: BytesPerStep = SENT) -> list[str]:
    """The lines that introduce a run."""
    reporter = Reporter(run, 110)
    reporter.introduce({"w": jnp.zeros((30, 40))}, sent)
    reporter.close()
    return capsys.readouterr().err.splitlines()


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> tuple[Path, str, str]:
    """The workdir, the standard output and the standard error of a run."""
    workdir = tmp_path_factory.mktemp("printed")
    with pytest.MonkeyPatch.context() as patch:
        out, err = io.StringIO(), io.StringIO()
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        assert main(command(workdir=workdir)) == 0
    return workdir, out.getvalue(), err.getvalue()


@same_run
def test_last_line_on_standard_output_is_the_summary(printed):
    _, out, _ = printed
    (line,) = out.splitlines()
    assert json.loads(line).keys() == Summary.__annotations__.keys()


@same_run
def test_every_line_fits_100_columns(printed):
    lines = printed[2].splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= 100, lines


@same_run
def test_run_says_what_it_does_before_the_first_step(printed):
    lines = printed[2].splitlines()
    name = LONG_NAME[:39] + "…"
    assert lines[:3] == [
        f"{name}: reading digits",
        f"{name}: compiling the training step",
        f"{name} starts:",
    ]
    means = "train loss and accuracy are means over the steps since the line before"
    assert f"  log         every 4 steps; {means}" in lines


@same_run
def test_log_has_one_line_for_each_step_that_is_due(printed):
    steps = [line for line in printed[2].splitlines() if line.startswith("step ")]
    assert [line.split("  ")[0].rstrip() for line in steps] == [
        "step 4/11",
        "step 8/11",
        "step 11/11",
        "step 11/11",
    ]
    assert [re.findall(r"(train|test) loss", line) for line in steps] == [["train"]] * 3 + [
        ["test"]
    ]
    assert len({line.index("accuracy") for line in steps}) == 1
    assert "perplexity" not in printed[2]


@same_run
def test_files_have_all_metrics(printed):
    workdir, _, err = printed
    training, *_, tests = logged(workdir)
    others = training.keys() - {"step", *WITH_A_COLUMN}
    assert others > {"epoch", "skipped_steps"}
    assert not [name for name in others if re.search(rf"\b{name} [\d.]", err)]
    assert "test_perplexity" in tests


@same_run
def test_run_ends_with_a_readable_summary(printed):
    _, out, err = printed
    summary = json.loads(out)
    *_, title, accuracy, loss, train_loss, sent, steps, seconds = err.splitlines()
    assert title.endswith(" has finished:")
    assert accuracy == f"  test accuracy   {100 * summary['test_accuracy']:.2f} %"
    assert loss == f"  test loss       {summary['test_loss']:.4f}"
    assert train_loss.endswith(f"  {summary['train_loss']:.4f}, the mean of the last epoch")
    assert sent.startswith(f"  bytes per step  {summary['bytes_per_step']:,.0f}, ")
    assert steps == "  steps           11, none skipped"
    assert seconds.startswith(f"  seconds         {summary['seconds']:,.1f}")


@same_run
def test_finished_run_prints_its_summary_again_and_that_nothing_was_trained(printed, capsys):
    workdir, out, err = printed
    assert main([*command(workdir=workdir, name="run"), "--verbose"]) == 0
    again = capsys.readouterr()
    assert again.out == out
    assert again.err.splitlines() == [
        "run had finished after step 11: nothing was trained. Another --workdir starts a new run.",
        *err.splitlines()[-6:],
    ]


def test_verbose_run_prints_all_metrics(tmp_path, capsys):
    assert main([*command(epochs=0.2, workdir=tmp_path), "--verbose"]) == 0
    err = capsys.readouterr().err
    training, _ = logged(tmp_path)
    for name in training.keys() - {"step", *WITH_A_COLUMN}:
        assert re.search(rf"^  (.*  )?{name} \S", err, flags=re.MULTILINE), name
    assert "perplexity" not in err
    assert ", the mean of all steps" in err
    assert max(map(len, err.splitlines())) <= 100


def test_run_of_other_workers_says_so_in_words_that_programs_read(capsys):
    first, *_ = introduced(run_of(Config(), step=8, saved_workers=3), capsys)
    assert first.startswith(
        "run resumes after step 8 with 2 workers instead of 3 (what each worker"
    )


@pytest.mark.parametrize("name", ["run", LONG_NAME, "two\nlines"])
@pytest.mark.parametrize("step", [0, 8, 10**9])
def test_introduction_fits_100_columns(name, step, capsys):
    parts = {str(i): jaxcompress.top_k(0.01) for i in range(30)}
    compressor = jaxcompress.partition(parts, jaxcompress.by_shape())
    config = Config(name=name, period=10**6, log_every_steps=10**6, dataset="tiny_shakespeare")
    sent = BytesPerStep(1e15, 1e15, 1e18, 1e17)
    lines = introduced(run_of(config, step, 10**6, compressor), capsys, sent)
    assert max(map(len, lines)) <= 100, lines
    labels = [line[2:12].strip() for line in lines if re.match(r"  \w", line)]
    rows = ["model", "data", "workers", "compressor", "sent", "log"]
    assert [label for label in labels if label in rows] == rows


def test_introduction_says_what_is_sent(capsys):
    lines = introduced(run_of(Config()), capsys)
    assert lines[0] == "run starts:"
    assert "  model       simple_cnn, 1,200 parameters" in lines
    assert "  workers     2 in 1 process" in lines
    sent = "  sent        2,512 bytes per worker and step, 37 times fewer than dense() (92,944)"
    assert sent in lines
    sent = BytesPerStep(1000.0, 1000.0, 8000.0, 4000.0)
    lines = introduced(run_of(Config(period=4)), capsys, sent)
    assert lines[5].startswith(
        "  sent        1,000 bytes per worker and step (4,000 in the last of"
    )
    lines = introduced(run_of(Config(fsdp=2)), capsys)
    assert lines[5].startswith("  sent        2,512 bytes per device and step")


def test_ef21_is_introduced_with_its_risk(capsys):
    run = run_of(Config(), compressor=jaxcompress.ef21(jaxcompress.top_k(0.01)))
    lines = introduced(run, capsys)
    assert lines[-2].startswith("ef21 can diverge with the noise of small batches")
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("name", ["digits", LONG_NAME, "[red]:smile:"])
def test_bar_of_a_terminal_has_rate_and_time_left_in_100_columns(columns, name, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    display = ProgressDisplay(name, 0, 10**6 if columns == 80 else 10**9, shown=True)
    assert display.width == min(100, columns)
    for _ in range(10):
        display.advance()
    display.line("step 5/110  :smile: [red]")
    display.close()
    display.line("later")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n")
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= min(100, columns)
    assert "step 5/110  :smile: [red]" in lines
    assert lines[-1] == "later"
    bars = [line for line in lines if "steps/s" in line]
    assert bars and all(line.endswith(" left") for line in bars)
    assert bars[-1].startswith(name[:19])


def test_other_processes_print_nothing(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    display = ProgressDisplay("run", 0, 10, shown=False)
    display.advance()
    display.line("text")
    display.close()
    assert terminal.getvalue() == ""
