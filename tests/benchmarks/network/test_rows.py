"""Rows of the file: their columns, how they merge, and their order."""

import pytest
from network_rows import ABOUT, FOUND, made

from benchmarks.common import results
from benchmarks.network.methods import Method
from benchmarks.network.rows import RESULTS, merged, over_rounds, row


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)


def after(earlier, new):
    """What the file holds after `new`, where it held `earlier`."""
    results.write_csv(RESULTS.name, earlier)
    return merged(RESULTS, new)


def test_a_row_holds_median_spread_and_ratios():
    one = row(Method("jax", "dense()"), 2, "1gbit", 0, FOUND, ABOUT)
    assert (one["step_ms"], one["min_ms"], one["max_ms"]) == ("12.0", "10.0", "20.0")
    assert one["communication_ms"] == "9.0"
    assert (one["interface_bytes"], one["payload_bytes"], one["payload_ratio"]) == (
        "1010000",
        "1003400",
        "1.003",
    )
    # 1.01 MB at 125 MB/s
    assert (one["floor_ms"], one["times_floor"]) == ("8.1", "1.49")


def test_without_compiled_bytes_the_payload_is_compared_with_requested_bytes():
    about = {key: value for key, value in ABOUT.items() if key != "compiled_bytes"}
    one = row(Method("torch", "DDP, dense"), 2, "1gbit", 0, FOUND, about)
    assert one["payload_ratio"] == "1.115"


def test_a_new_row_takes_the_place_of_the_same_method_hosts_and_rate():
    rows = after([made(step_ms=10), made(workers=4)], [made(step_ms=20)])
    assert [(each["workers"], each["step_ms"]) for each in rows] == [(2, "20.0"), ("4", "10.0")]


def test_a_round_has_rows_of_its_own():
    rows = after([made(step_ms=10), made(step_ms=20, round_=1)], [made(step_ms=30, round_=1)])
    assert [each["step_ms"] for each in rows] == ["10.0", "30.0"]


def test_rounds_of_another_commit_make_way():
    earlier = [made(round_=0), made(round_=1), made(rate="10gbit"), made("error_feedback(sign())")]
    rows = after(earlier, [made(commit="def"), made(commit="def", round_=2)])
    assert [(each["method"], each["rate"], each["round"], each["commit"]) for each in rows] == [
        ("dense()", "1gbit", 0, "def"),
        ("dense()", "1gbit", 2, "def"),
        ("error_feedback(sign())", "1gbit", "0", "abc"),
        ("dense()", "10gbit", "0", "abc"),
    ]


def test_only_rows_of_one_commit_are_compared():
    sign = "error_feedback(sign())"
    rows = after([made(step_ms=30)], [made(sign, step_ms=10, commit="def")])
    assert [each["times_dense"] for each in rows] == ["1.00", ""]
    mixed = [made(), made(round_=1, commit="def")]
    assert [each["rounds"] for each in over_rounds(mixed)] == [1, 1]


def test_a_row_is_compared_with_the_dense_average_of_its_round():
    sign = "error_feedback(sign())"
    rows = after([], [made(round_=0), made(step_ms=30, round_=1), made(sign, step_ms=5, round_=1)])
    assert [each["times_dense"] for each in rows] == ["1.00", "1.00", "6.00"]


def test_over_rounds_there_is_one_row_of_medians():
    steps = (30.0, 10.0, 11.25)
    rows = after([], [made(step_ms=step, round_=i) for i, step in enumerate(steps)])
    (one,) = over_rounds(rows)
    assert (one["step_ms"], one["min_ms"], one["max_ms"]) == ("11.2", "10.0", "30.0")
    assert (one["rounds"], one["interface_bytes"], one["backward_ms"]) == (3, "1010000", "")
    assert over_rounds([made(workers=2), made(workers=4)]) == [
        made(workers=each) | {"min_ms": "10.0", "max_ms": "10.0", "rounds": 1} for each in (2, 4)
    ]


def test_a_row_is_compared_with_the_better_dense_average_of_its_network():
    rows = after(
        [made(step_ms=10), made("DDP, dense", "torch", step_ms=30)],
        [made("DDP, fp16 hook", "torch", step_ms=5), made(rate="10gbit")],
    )
    assert [each["times_dense"] for each in rows] == ["1.00", "0.33", "2.00", "1.00"]


def test_without_a_dense_row_there_is_no_comparison():
    assert after([], [made("error_feedback(sign())")])[0]["times_dense"] == ""


def test_rates_are_ordered_as_numbers_and_unknown_methods_last():
    rows = after(
        [made("gone()"), made(rate="10gbit"), made(rate="100mbit"), made("error_feedback(sign())")],
        [made()],
    )
    assert [(each["rate"], each["method"]) for each in rows] == [
        ("100mbit", "dense()"),
        ("1gbit", "dense()"),
        ("1gbit", "error_feedback(sign())"),
        ("1gbit", "gone()"),
        ("10gbit", "dense()"),
    ]
