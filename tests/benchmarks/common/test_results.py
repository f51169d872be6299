"""New rows replace earlier ones of the same measurement, and all stay in order."""

import pytest

from benchmarks.common import results
from benchmarks.common.results import Results, position, read_csv, write_csv

LABELS = ["dense()", "sign()"]
RATES = Results(
    "rates.csv", ("label", "rate"), lambda row: (position(LABELS, row["label"]), float(row["rate"]))
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    return tmp_path


def row(label, rate, loss):
    return {"label": label, "rate": rate, "loss": loss}


def shown():
    return [tuple(each.values()) for each in RATES.read()]


def test_without_a_file_there_are_no_rows():
    assert RATES.read() == []


def test_a_new_row_replaces_the_same_measurement_only():
    RATES.save([row("sign()", 2.0, 1), row("sign()", 0.5, 2), row("dense()", 1.0, 3)])
    RATES.save([row("sign()", 2.0, 4)])
    assert shown() == [("dense()", "1.0", "3"), ("sign()", "0.5", "2"), ("sign()", "2.0", "4")]


def test_all_earlier_rows_of_a_measurement_are_replaced():
    RATES.save([row("sign()", 2.0, 1), row("sign()", 2.0, 2)])
    RATES.save([row("sign()", 2.0, 3)])
    assert shown() == [("sign()", "2.0", "3")]


def test_a_label_that_is_no_longer_listed_sorts_last():
    RATES.save([row("gone()", 1.0, 1), row("sign()", 9.0, 2)])
    assert [label for label, _, _ in shown()] == ["sign()", "gone()"]


def test_a_measurement_can_be_dropped():
    RATES.save([row("sign()", 2.0, 1), row("dense()", 1.0, 3)])
    RATES.drop({"label": "sign()", "rate": 2.0})
    assert shown() == [("dense()", "1.0", "3")]
    RATES.drop({"label": "dense()", "rate": "1.0"})
    assert shown() == []


def test_rows_that_are_not_listed_are_dropped():
    RATES.save([row("gone()", 1.0, 1)])
    RATES._replace(listed=lambda each: each["label"] in LABELS).save([row("sign()", 1.0, 2)])
    assert [label for label, _, _ in shown()] == ["sign()"]


def test_a_column_that_a_row_lacks_stays_empty_in_it(folder):
    assert write_csv("some.csv", [{"a": 1}, {"a": 2, "b": 3}]) == folder / "some.csv"
    assert read_csv("some.csv") == [{"a": "1", "b": ""}, {"a": "2", "b": "3"}]


def test_a_measurement_counts_at_the_commit_that_made_it():
    RATES.save([row("sign()", 2.0, 1) | {"commit": "abc"}])
    assert RATES.measured(row("sign()", 2.0, 3), "abc")
    assert not RATES.measured(row("sign()", 2.0, 3), "def")
    assert not RATES.measured(row("sign()", 0.5, 3), "abc")
    RATES.save([row("sign()", 2.0, 1) | {"commit": "abc-dirty"}])
    assert not RATES.measured(row("sign()", 2.0, 3), "abc-dirty")
