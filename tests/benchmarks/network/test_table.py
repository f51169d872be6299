"""Rows of the file: their columns, how they merge, and their order."""

import pytest

from benchmarks.common import results
from benchmarks.hosts.host_processes import Measured
from benchmarks.network.methods import Method
from benchmarks.network.table import (
    RESULTS,
    headline,
    merged,
    over_rounds,
    peers,
    profile,
    row,
    shown,
)

ABOUT = {"version": "jax 1", "python": "3", "requested_bytes": 900_000, "compiled_bytes": 1_000_000}
USED = {"user_ms": 3.0, "system_ms": 1.0, "page_faults": 7.0, "waits": 5.0, "preemptions": 2.0}
SENT = (1_010_000, 100, USED)
FOUND = {"step": Measured([12.0, 10.0, 20.0], *SENT), "bare": Measured([9.0, 8.0, 9.5], *SENT)}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)


def after(earlier, new):
    """What the file holds after `new`, where it held `earlier`."""
    results.write_csv(RESULTS.name, earlier)
    return merged(RESULTS, new)


def made(
    method="dense()",
    framework="jax",
    workers=2,
    rate="1gbit",
    step_ms=10.0,
    round_=0,
    commit="abc",
):
    found = FOUND | {"step": Measured([step_ms], *SENT)}
    one = row(Method(framework, method), workers, rate, round_, found, ABOUT)
    return one | {"commit": commit}


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
    assert peers([made(), made("DDP, dense", "torch", commit="def")], []) == []
    (line,) = headline([each for each in rows if each["method"] == sign])
    assert line["ms at 1 Gbit/s"] == "10.0"
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


def test_every_row_is_shown():
    assert [each["method"] for each in shown(after([made()], [made("DDP, dense", "torch")]))] == [
        "`dense()`",
        "DDP, dense",
    ]


def test_the_headline_has_a_line_for_each_method_and_a_column_for_each_rate():
    slow, fast = made(rate="100mbit", step_ms=100.0), made(step_ms=10.0)
    sign = made("error_feedback(sign())", rate="100mbit", step_ms=20.0)
    lines = headline(
        after([slow, fast, sign], [made(workers=4), made("DDP, dense", "torch", step_ms=12.0)])
    )
    assert lines == [
        {
            "average by": "`dense()`",
            "MB sent": "1.00",
            "ms at 100 Mbit/s": "100.0 (1.00×)",
            "ms at 1 Gbit/s": "10.0 (1.00×)",
        },
        {
            "average by": "`error_feedback(sign())`",
            "MB sent": "1.00",
            "ms at 100 Mbit/s": "20.0 (5.00×)",
            "ms at 1 Gbit/s": "",
        },
        {
            "average by": "PyTorch: DDP, dense",
            "MB sent": "1.00",
            "ms at 100 Mbit/s": "",
            "ms at 1 Gbit/s": "12.0 (0.83×)",
        },
    ]


def test_without_rows_of_so_many_hosts_there_is_no_headline():
    assert headline([made(workers=4)]) == []


def test_the_profile_says_how_busy_the_cores_were(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    fast, slow = made(step_ms=8.0), made(step_ms=8.0, rate="100mbit")
    earlier = {key: value for key, value in made().items() if key != "cores_used"}
    # Two hosts of 4 ms each, on two cores, in 8 ms.
    assert profile([*over_rounds([fast, slow]), *over_rounds([earlier])]) == [
        {
            "average by": "`dense()`",
            "hosts": 2,
            "step ms": "8.0",
            "from–to": "8.0–8.0",
            "runs": 1,
            "link ms": "8.1",
            "computing ms": "3.0",
            "kernel ms": "1.0",
            "cores in use": "50 %",
            "page faults": "7",
            "waits": "5",
        }
    ]


def test_methods_are_compared_with_those_of_pytorch():
    hook, ours = "DDP, fp16 hook", "error_feedback(cast('bfloat16'))"
    rows = [
        *(made(ours, workers=each, step_ms=4.0) for each in (4, 2)),
        *(made(hook, "torch", each, step_ms=5.0) for each in (2, 4)),
        made(ours, rate="100mbit", step_ms=6.0),
        made(hook, "torch", rate="100mbit", step_ms=4.0),
        made("error_feedback(sign())"),
    ]
    with_huge_pages = [made(ours, step_ms=3.0), made(hook, "torch", step_ms=2.0)]
    names = {"jaxcompress": f"`{ours}`", "PyTorch": hook}
    assert peers(rows, with_huge_pages) == [
        names | {"hosts": 2, "100 Mbit/s": "1.50", "1 Gbit/s": "0.80 / 1.50"},
        names | {"hosts": 4, "100 Mbit/s": "", "1 Gbit/s": "0.80"},
    ]


def test_ratios_are_of_equal_rounds_with_their_median_and_range():
    ours = [made(step_ms=step, round_=i) for i, step in enumerate((8.0, 30.0, 9.0, 7.0))]
    theirs = [
        made("DDP, dense", "torch", step_ms=step, round_=i)
        for i, step in enumerate((10.0, 20.0, 10.0))
    ]
    (line,) = peers(ours + theirs, [])
    assert line["1 Gbit/s"] == "0.90 (0.80–1.50)"


def test_without_a_counterpart_nothing_is_compared():
    assert peers([made(), made("DDP, fp16 hook", "torch")], []) == []
