"""Tables of the file: their lines and columns."""

from network_rows import made

from benchmarks.network.rows import beside_dense, over_rounds
from benchmarks.network.table import headline, peers, profile, shown


def test_every_row_is_shown():
    assert [each["method"] for each in shown([made(), made("DDP, dense", "torch")])] == [
        "`dense()`",
        "DDP, dense",
    ]


def test_the_headline_has_a_line_for_each_method_and_a_column_for_each_rate():
    slow, fast = made(rate="100mbit", step_ms=100.0), made(step_ms=10.0)
    sign = made("error_feedback(sign())", rate="100mbit", step_ms=20.0)
    torch = made("DDP, dense", "torch", step_ms=12.0)
    lines = headline(beside_dense([slow, fast, sign, torch, made(workers=4)]))
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
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    fast, slow = made(step_ms=8.0), made("sign()", step_ms=8.0, rate="100mbit")
    earlier = {key: value for key, value in made().items() if key != "cores_used"}
    # Two hosts of 4 ms each, on two cores, in 8 ms.
    assert profile([*over_rounds([fast, slow]), *over_rounds([earlier])]) == [
        {
            "average by": "`dense()`",
            "hosts": 2,
            "link": "1 Gbit/s",
            "step ms": "8.0",
            "from–to": "8.0–8.0",
            "runs": 1,
            "link ms": "8.1",
            "collectives alone ms": "9.0",
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


def test_the_counterpart_is_the_fastest_form_of_each_round():
    hook, together = (
        "DDP, PowerSGD hook, rank 2",
        "DDP, PowerSGD hook, same shapes together, rank 2",
    )
    ours = [made("error_feedback(power_sgd(2))", step_ms=6.0, round_=i) for i in (0, 1, 2)]
    theirs = [
        made(method, "torch", step_ms=step, round_=i)
        for method, i, step in ((hook, 0, 12.0), (together, 0, 10.0), (together, 1, 8.0))
    ]
    (line,) = peers(ours + theirs, [])
    assert line["PyTorch"] == f"{hook}, in its faster form"
    assert line["1 Gbit/s"] == "0.68 (0.60–0.75)"


def test_without_a_counterpart_of_the_same_commit_nothing_is_compared():
    assert peers([made(), made("DDP, fp16 hook", "torch")], []) == []
    assert peers([made(), made("DDP, dense", "torch", commit="def")], []) == []
    (_, line) = headline(beside_dense([made(), made("error_feedback(sign())", commit="def")]))
    assert line["ms at 1 Gbit/s"] == "10.0"
