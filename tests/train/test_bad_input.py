"""Bad input: exit code 2 and one message with the value, the rule and what to do; no traceback."""

import pytest
from broken_settings import BROKEN
from train_helpers import ALONE, train

from train.__main__ import main

# Command line -> parts of the message. These errors are found before any device is used.
CASES = {
    "config key": (["bad_key.yaml"], ["config key", "'learning_rat'", "'learning_rate'"]),
    "config file": (["none.yaml"], ["'none.yaml' cannot be read"]),
    "model": (["--model", "resnet81"], ["unknown model 'resnet81'", "'resnet8'"]),
    "data set": (["--dataset", "minst"], ["unknown data set 'minst'", "'mnist'"]),
    "image model for text": (
        ["--model", "resnet8", "--dataset", "tiny_shakespeare"],
        [
            "model 'resnet8' does not fit data set 'tiny_shakespeare', which is text",
            "for text: lstm, transformer.",
        ],
    ),
    "text model for images": (
        ["--model", "lstm", "--dataset", "mnist"],
        ["model 'lstm' does not fit data set 'mnist', which is images", "for images: resnet18,"],
    ),
    "context": (["--context", "0"], ["context must be at least 1 and below 2**31; got 0"]),
    "constructor": (["--compressor", "error_feedback(topk(0.01))"], ["'top_k'", "column 16", "^"]),
    "module": (
        ["--compressor", "error_feedback(mine.outliers(2.0))"],
        ["module 'mine' is not allowed", "--compressor-modules mine", "column 16", "^"],
    ),
    "no module": (
        ["--compressor", "none_such.outliers()", "--compressor-modules", "none_such"],
        ["error: compressor: ", "'none_such' cannot be imported: ModuleNotFoundError", "column 1"],
    ),
    "syntax": (["--compressor", "top_k(0.01"], ["column", "^"]),
    "no compressor": (["--compressor", "0.01"], ["not a compressor"]),
    "density": (["--compressor", "top_k(1.5)"], ["density", "(0, 1]", "1.5"]),
    "rank": (["--compressor", "power_sgd(0)"], ["rank", "0"]),
    "bits": (["--compressor", "qsgd(99)"], ["bits", "99"]),
    "range": (["--learning-rate", "-1"], ["learning_rate must be above 0 and finite; got -1.0"]),
    "empty workdir": (["--workdir", ""], ["workdir must be a folder, or omitted; got ''"]),
    "batch size": (
        ["--batch-size", "100", "--workers", "8"],
        ["100 for 8 workers", "--batch-size 96 or 104"],
    ),
    "no nodes": (
        ["--compressor", "hierarchical(dense(), top_k(0.1))"],
        ["nodes=None", "--nodes with the number"],
    ),
    "masking between nodes": (
        ["--optimizer", "dgc", "--nodes", "2", "--compressor", "hierarchical(dense(), top_k(0.1))"],
        ["dgc resets the velocity of every entry sent", "Use --no-masking"],
    ),
    "dgc around noise": (
        ["--optimizer", "dgc", "--no-masking", "--compressor", "qsgd(2, norm='l2')"],
        ["dgc is unstable around qsgd(2, norm='l2')", "such as int4() or top_k(0.01)"],
    ),
    "half a cluster": (["--num-processes", "2"], ["go together"]),
    "process": (
        ["--coordinator", "127.0.0.1:1", "--num-processes", "2", "--process-id", "2"],
        ["process_id must be from 0 to 1; got 2"],
    ),
    "dgc around a memory": (
        ["--optimizer", "dgc", "--compressor", "error_feedback(top_k(0.1))"],
        ["error: --optimizer dgc has an error memory of its own", "error_feedback(top_k(0.1))"],
    ),
    "size of another model": (
        ["--model", "lstm", "--dataset", "tiny_shakespeare", "--layers", "4"],
        ["layers needs --model transformer; got layers=4 without"],
    ),
    "freeze step of another optimizer": (
        ["--optimizer", "adam", "--freeze-step", "500"],
        ["freeze_step needs --optimizer onebit_adam, onebit_lamb or zero_one_adam; got"],
    ),
    "onebit_lamb with stacked layers": (
        [
            *("--model", "transformer", "--dataset", "tiny_shakespeare"),
            *("--optimizer", "onebit_lamb", "--scan-layers"),
        ],
        ["onebit_lamb has a trust ratio for each array", "--no-scan-layers"],
    ),
    "steps without epochs": (["--schedule", "step"], ["decay_epochs; got none", "constant"]),
    "workers of processes": (
        [
            "--coordinator",
            "127.0.0.1:1",
            "--num-processes",
            "2",
            "--process-id",
            "0",
            "--workers",
            "3",
        ],
        ["3 workers for 2 processes"],
    ),
}
# These errors need the devices, eight in these tests.
CASES_WITH_DEVICES = {
    "batch size for all devices": (["--batch-size", "100"], ["100 for 8 workers"]),
    "nodes": (
        ["--nodes", "3"],
        ["error: nodes: ", "nodes=3 does not divide 8 workers", "1, 2, 4, 8 nodes"],
    ),
    "workdir": (["--workdir", "a_file/run"], ["cannot be written", "--workdir"]),
    "home": (["--workdir", "~no_such_user/run"], ["path '~no_such_user/run' cannot be used"]),
    "data dir": (["--dataset", "mnist", "--data-dir", "nowhere"], ["mnist", "nowhere"]),
    "compressor for the model": (
        ["--compressor", "partition({'x': top_k(0.1)}, by_shape())"],
        ["error: compressor: ", "'Conv_0/bias'", "partition knows ['x']"],
    ),
    "batch size for the data": (
        ["--batch-size", "1440"],
        ["at most the 1437 training examples", "1440"],
    ),
}


# A cluster of one process, as options.
ALONE_OPTIONS = [
    word for field, value in ALONE.items() for word in (f"--{field.replace('_', '-')}", str(value))
]


@pytest.mark.parametrize("case", [*CASES, *CASES_WITH_DEVICES])
def test_bad_input_is_reported_with_exit_code_2(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad_key.yaml").write_text("learning_rat: 0.1\n", encoding="utf-8")
    (tmp_path / "a_file").touch()
    arguments, expected = (CASES | CASES_WITH_DEVICES)[case]
    alone = ALONE_OPTIONS if case in CASES_WITH_DEVICES else []
    assert main([*arguments, *alone]) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    # Before it, what the run was doing.
    lines = reported.err.splitlines()
    (first,) = (place for place, line in enumerate(lines) if line.startswith("error: "))
    assert all(line.startswith("run: ") for line in lines[:first])
    for part in expected:
        assert part in reported.err


BROKEN_VALUES = [(field, value) for field, values in BROKEN.items() for value in values]


@pytest.mark.parametrize(("field", "value"), BROKEN_VALUES)
def test_value_that_breaks_a_rule_is_reported_in_one_short_line(field, value, capsys):
    words = [str(x) for x in value] if isinstance(value, tuple) else [str(value)]
    option = f"--{field.replace('_', '-')}"
    # With "=", since a value may begin with a minus.
    given = [option, *words] if isinstance(value, tuple) else [f"{option}={words[0]}"]
    assert main(given) == 2
    line, *rest = capsys.readouterr().err.splitlines()
    assert not rest
    assert len(line) < 200
    assert line.startswith(f"error: {field} must be ")


def test_unknown_option_is_reported_with_exit_code_2(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--epoch", "3"])
    assert stop.value.code == 2
    assert "--epochs" in capsys.readouterr().err


def test_real_process_ends_with_exit_code_2_and_without_a_traceback():
    result = train("--compressor", "top_k(1.5)")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "density is the fraction kept" in result.stderr


def test_compressor_that_cannot_be_written_as_text_is_reported(monkeypatch, capsys):
    def unparse(compressor):
        raise ValueError("this compressor cannot be written as text")

    monkeypatch.setattr("jaxcompress.unparse", unparse)
    assert main(ALONE_OPTIONS) == 2
    assert (
        capsys.readouterr().err == "error: compressor: this compressor cannot be written as text\n"
    )


def test_more_workers_than_devices_says_how_many_there_are(monkeypatch, capsys):
    # A fixed number of eight devices, as on a machine with eight accelerators.
    monkeypatch.setattr("jaxcompress.virtual_cpu_workers", lambda workers: None)
    assert main(["--workers", "16", *ALONE_OPTIONS]) == 2
    reported = capsys.readouterr().err
    assert reported.startswith("error: workers: there are 8 cpu devices")
    assert "got 16" in reported
