"""Settings: a YAML file, options that override it, and the rules for their values."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from broken_settings import BROKEN
from train_helpers import REPOSITORY

import jaxcompress
from train.config import Config, load_config
from train.config_rules import ONLY_WITH, RULES, check_config
from train.errors import InputError
from train.startup import check_names

CONFIGS = sorted((REPOSITORY / "configs").glob("*.yaml"))


def written(folder: Path, text: str) -> str:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_no_arguments_give_the_defaults():
    assert load_config([]) == Config()


def test_command_line_overrides_the_file_and_the_file_the_defaults(tmp_path):
    path = written(tmp_path, "epochs: 2\nlearning_rate: 0.5\ndataset: mnist")
    config = load_config([path, "--epochs", "7", "--data-dir", "somewhere"])
    assert config == Config(epochs=7.0, learning_rate=0.5, dataset="mnist", data_dir="somewhere")


def test_options_list_the_modules_of_compressors():
    config = load_config(["--compressor-modules", "mine", "pkg.mine", "--epochs", "2"])
    assert config == Config(compressor_modules=("mine", "pkg.mine"), epochs=2.0)


def test_every_field_survives_a_file(tmp_path):
    config = Config(
        compressor_modules=("mine", "pkg.mine"),
        decay_epochs=(1.0, 2.5),
        schedule="step",
        workers=4,
        nesterov=False,
        checkpoint_every_steps=9,
    )
    # JSON is YAML.
    assert load_config([written(tmp_path, json.dumps(dataclasses.asdict(config)))]) == config


def test_number_without_a_decimal_point_is_a_number(tmp_path):
    # YAML 1.1 reads 1e-3 as text.
    assert load_config([written(tmp_path, "learning_rate: 1e-3")]).learning_rate == 1e-3


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}"])
def test_file_without_settings_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=r"has no settings\. Write them as `field: value`"):
        load_config([written(tmp_path, text)])


UNQUOTED = 'partition({"matrix": power_sgd(4), "rest": dense()}, by_shape())'


@pytest.mark.parametrize(
    "text",
    [
        f"epochs: 2\ncompressor: {UNQUOTED}\nworkers: 2",
        f"compressor: error_feedback({UNQUOTED})",
        f"compressor: error_feedback(\n  {UNQUOTED})\nworkers: 2",
        f"compressor: '{UNQUOTED.replace(chr(34), chr(39))}'",
    ],
)
def test_compressor_that_lacks_quotes_says_where_they_belong(tmp_path, text):
    with pytest.raises(InputError, match=r"is not YAML(.|\n)*in single quotes") as error:
        load_config([written(tmp_path, text)])
    shown = str(error.value).partition("double quotes:\n  ")[2]
    assert load_config([written(tmp_path, shown)]).compressor == UNQUOTED


def test_other_mistakes_say_nothing_about_quotes(tmp_path):
    with pytest.raises(InputError, match="is not YAML") as error:
        load_config([written(tmp_path, f"compressor: '{UNQUOTED}'\nname: a: b")])
    assert "quotes" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat: 1", "Did you mean 'learning_rate'"),
        ("optimizer: adamm", "Did you mean 'adam'"),
        ("workers: yes", "workers .* must be of type int; got True"),
        ("batch_size: 12.5", "batch_size .* must be of type int; got 12.5"),
        ("epochs: many", "epochs .* must be of type float; got 'many'"),
        ("epochs: null", "epochs .* must be of type float; got None"),
        ("decay_epochs: [1, x]", "decay_epochs .* must be of type float; got 'x'"),
        ("decay_epochs: 1", "decay_epochs .* must be of type tuple"),
        ("compressor_modules: [mine, 2]", "compressor_modules .* must be of type str; got 2"),
        ("compressor_modules: mine", "compressor_modules .* must be of type tuple; got 'mine'"),
        ("- epochs", "must be a mapping"),
        ("epochs: [", "is not YAML"),
        ("epochs: 1\nworkers: 2\nepochs: 3", r"'epochs' is given twice\n.*line 3"),
        (f"epochs: 1{'0' * 400}", "epochs .* must be of type float"),
        (f"epochs: 1{'0' * 5000}", "is not YAML: .*digits"),
        ("epochs: {[1]: 2}", "is not YAML"),
        ("name: 2026-13-45", "is not YAML: .*month"),
    ],
)
def test_invalid_file_says_what_is_wrong(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        load_config([written(tmp_path, text)])


def test_missing_file_says_so(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_config([str(tmp_path / "none.yaml")])


def test_missing_file_suggests_the_nearest_name(tmp_path):
    (tmp_path / "mnist_top_k.yaml").touch()
    (tmp_path / "digits.yaml").touch()
    with pytest.raises(InputError, match=r"Did you mean '.*/mnist_top_k\.yaml'\?"):
        load_config([str(tmp_path / "mnist_topk.yaml")])


def test_help_lists_every_field(capsys):
    with pytest.raises(SystemExit) as stop:
        load_config(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for field in dataclasses.fields(Config):
        assert f"--{field.name.replace('_', '-')}" in text
    assert "CONFIG.yaml" in text


def test_defaults_break_no_rule():
    check_config(Config())


def test_every_rule_has_a_broken_case():
    assert RULES.keys() == BROKEN.keys()


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in BROKEN.items() for value in values]
)
def test_broken_rule_names_field_and_value(field, value):
    schedule = "step" if field == "decay_epochs" else "cosine"
    with pytest.raises(InputError) as error:
        check_config(dataclasses.replace(Config(schedule=schedule), **{field: value}))
    # Of a long value the beginning.
    shown = repr(value)[:59]
    assert str(error.value).startswith(f"{field} must be {RULES[field][0]}; got {shown}")


def test_rule_about_two_fields_names_both():
    with pytest.raises(InputError, match=r"got 9\.0 with epochs=2\.0"):
        check_config(Config(warmup_epochs=9.0, epochs=2.0))


@pytest.mark.parametrize("epochs", [0.3, 0.001, 0.5, 3.0, 100.0])
def test_warmup_that_is_too_long_names_one_that_is_not(epochs):
    config = Config(warmup_epochs=100.0, epochs=epochs)
    with pytest.raises(InputError, match=r"Give --warmup-epochs (\S+), or 0 for none\.") as error:
        check_config(config)
    (given,) = re.findall(r"--warmup-epochs (\S+),", str(error.value))
    check_config(dataclasses.replace(config, warmup_epochs=float(given)))
    if epochs == 0.3:
        assert given == "0.1"


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"decay_epochs": (1.0,)}, "--schedule step"),
        ({"decay_rate": 0.5}, "--schedule step"),
        ({"momentum": 0.5, "optimizer": "adam"}, "--optimizer sgd, rmsprop or dgc"),
        ({"nesterov": False, "optimizer": "muon"}, "--optimizer sgd, rmsprop or dgc"),
        ({"masking": False}, "--optimizer dgc"),
        ({"freeze_step": 5, "optimizer": "dgc"}, "--optimizer onebit_adam, onebit_lamb or"),
        ({"clip_norm": 1.0, "optimizer": "sign_sgd"}, "an --optimizer other than sign_sgd"),
        ({"scan_layers": True}, "--model transformer"),
        ({"outer_optimizer": "nesterov"}, "--period"),
        ({"outer_learning_rate": 1.0}, "--period"),
        ({"period": 4, "outer_momentum": 0.5}, "--period and --outer-optimizer nesterov"),
        ({"min_workers": 2}, "--supervise"),
        ({"rejoin_seconds": 9.0, "supervise": True}, "--supervise and --min-workers"),
        ({"min_workers": 2, "num_processes": 4}, "--supervise"),
    ],
)
def test_a_setting_without_effect_is_refused(changes, needed):
    field = next(name for name in changes if any(name in fields for fields in ONLY_WITH))
    with pytest.raises(InputError, match=f"{field} needs {needed}.*; got {field}=.* without"):
        check_config(Config(**changes))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_of_the_repository_is_valid(path):
    config = load_config([str(path)])
    check_config(config)
    check_names(config)
    jaxcompress.parse(config.compressor, config.compressor_modules)
