"""Medians, missed targets, and speed-ups over the better dense run of both frameworks."""

from benchmarks.time_to_accuracy.methods import METHODS, Method
from benchmarks.time_to_accuracy.table import HEADLINE, headline, row, sections, table


def rows(method: Method, *seconds: str) -> list[dict]:
    known = {"steps": "100", "megabytes": "10", "test_loss": "1.9", "compile_seconds": "7.4"}
    known |= {"commit": "abc"}
    return [
        row("CNN on MNIST", method, method.name, 2, "1gbit", seed) | known | {"seconds": one}
        for seed, one in enumerate(seconds)
    ]


def method(name: str) -> Method:
    return next(each for each in METHODS if each.name == name)


def test_the_speed_up_is_over_the_better_dense_run():
    dense = rows(method("dense()"), "40", "44", "48")
    torch = rows(method("DDP, dense"), "33", "20", "22")
    found = table([*dense, *torch, *rows(method("error_feedback(power_sgd(2))"), "11", "10", "12")])
    assert [line["s at 1 Gbit/s"] for line in found] == ["44 (40–48)", "22 (20–33)", "11 (10–12)"]
    # Seed by seed: 33/40, 20/44, 22/48 and 33/11, 20/10, 22/12.
    assert [line["speed-up at 1 Gbit/s"] for line in found] == ["0.46", "1.00", "2.00"]
    assert [line["compile s"] for line in found] == ["7", "–", "7"]
    assert [line["method"] for line in found][1:] == [
        "PyTorch: DDP, dense",
        "`error_feedback(power_sgd(2))`",
    ]


def test_every_rate_has_its_own_columns():
    slow = [each | {"rate": "100mbit"} for each in rows(method("dense()"), "80")]
    ours = rows(method("error_feedback(int4())"), "20")
    found = table([*slow, *rows(method("dense()"), "40"), *ours])
    assert [line["s at 100 Mbit/s"] for line in found] == ["80", ""]
    assert [line["speed-up at 100 Mbit/s"] for line in found] == ["1.00", ""]
    assert [line["s at 1 Gbit/s"] for line in found] == ["40", "20"]
    assert [line["speed-up at 1 Gbit/s"] for line in found] == ["1.00", "2.00"]
    assert [line["steps"] for line in found] == ["100", "100"]


def test_a_missed_target_stays_in_the_table():
    (line,) = table(rows(method("error_feedback(int4())"), "9", "", "8"))
    assert line["s at 1 Gbit/s"] == "missed in 1 of 3"
    assert line["speed-up at 1 Gbit/s"] == line["steps"] == line["MB"] == ""
    assert line["test loss"] == "1.900"


def test_without_a_dense_run_there_is_no_speed_up():
    (line,) = table(rows(method("error_feedback(int4())"), "9"))
    assert line["speed-up at 1 Gbit/s"] == ""


def test_a_task_has_a_table_for_each_number_of_hosts_and_commit():
    dense = rows(method("dense()"), "40", "44")
    ours = rows(method("error_feedback(int4())"), "20", "11")
    of_a_commit = [each | {"commit": "def"} for each in ours[:1]]
    of_four_hosts = [each | {"workers": 4, "task": "transformer 4M"} for each in ours[:1]]
    found = sections([*dense, *ours[:1], *of_a_commit, *of_four_hosts])
    assert list(found) == ["CNN on MNIST", "transformer 4M"]
    captions = [
        [line for line in text.splitlines() if line.endswith(":")] for text in found.values()
    ]
    assert captions == [
        [
            "2 hosts, runs of each method: 1 to 2, measured at abc:",
            "2 hosts, runs of each method: 1, measured at def:",
        ],
        ["4 hosts, runs of each method: 1, measured at abc:"],
    ]


def of_headline(network: tuple[str, ...], name: str, *seconds: str) -> list[dict]:
    task, workers, rate = network
    return [
        each | {"task": task, "workers": workers, "rate": rate}
        for each in rows(method(name), *seconds)
    ]


def test_the_headline_is_the_fastest_of_ours_beside_the_best_dense_and_the_best_hook():
    slow, fast = HEADLINE
    found = [
        *of_headline(slow, "dense()", "700", "600", "650"),
        *of_headline(slow, "DDP, dense", "640", "660", "650"),
        *of_headline(slow, "error_feedback(power_sgd(2))", "130", "120", "125"),
        *of_headline(slow, "error_feedback(int4())", "11", "", "10"),  # missed the target
        *of_headline(slow, "DDP, fp16 hook", "300", "310", "320"),
        *of_headline(slow, "DDP, PowerSGD hook, rank 4", "150", "160", "155"),
        *of_headline(fast, "dense()", "70", "70", "71"),
        *of_headline(fast, "DDP, dense", "69", "69", "70"),
        *of_headline(fast, "error_feedback(int4())", "61", "62", "62"),
        *of_headline(fast, "DDP, fp16 hook", "60", "60", "59"),
    ]
    sentence = headline(found)
    assert "averaged with `error_feedback(power_sgd(2))` ([periods](docs/periods.md))," in sentence
    assert "and took 125 s. Dense" in sentence
    assert "Dense training took 650 s in JAX and 650 s in PyTorch; over the better" in sentence
    assert "the speed-up is 5.2." in sentence
    assert "PyTorch's fastest method (DDP, PowerSGD hook, rank 4) took 155 s." in sentence
    assert "the fastest of jaxcompress, `error_feedback(int4())`, took 62 s. Dense" in sentence
    assert "Dense training took 70 s in JAX and 69 s in PyTorch there, and" in sentence
    assert "PyTorch's fastest (DDP, fp16 hook) 60 s." in sentence
    assert "the first run named compiles for 7 s, and PyTorch does not compile." in sentence
    assert "Seconds and ratios are medians of 3 runs." in sentence


def test_the_headline_is_of_one_commit():
    names = ("dense()", "DDP, dense", "error_feedback(int4())", "DDP, fp16 hook")
    found = [
        each for network in HEADLINE for name in names for each in of_headline(network, name, "9")
    ]
    assert headline(found)
    assert not headline([each | {"commit": each["method"]} for each in found])


def test_without_pytorch_there_is_no_headline():
    ours = [
        row
        for network in HEADLINE
        for name in ("dense()", "error_feedback(power_sgd(2))")
        for row in of_headline(network, name, "100")
    ]
    assert headline(ours) == headline([]) == ""
