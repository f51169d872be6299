"""The overview of the options in ``--help``."""

import dataclasses

import pytest

from train.config import Config, load_config
from train.help_topics import TOPICS, usage

OVERVIEW = usage().split("below:\n")[1]


def test_topics_have_every_field_once_and_in_the_order_of_the_config():
    fields = [field.name for field in dataclasses.fields(Config)]
    assert [field for topic in TOPICS.values() for field in topic] == fields


def test_overview_fits_a_terminal_of_80_columns():
    lines = OVERVIEW.splitlines()
    assert max(map(len, lines)) <= 76
    assert max(map(len, usage().splitlines())) <= 100
    assert {line.index("--") for line in lines} == {lines[0].index("--")}


def test_help_begins_with_the_overview(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        load_config(["--help"])
    text = capsys.readouterr().out
    assert f"below:\n{OVERVIEW}\n" in text
    assert text.index("  compression ") < text.index("How gradients are compressed")
