"""The page of the scaling model."""

from benchmarks.common.results import read_csv
from benchmarks.scaling import page


def step(compressor, workers, gbit, ms, faster):
    return {
        "compressor": compressor,
        "workers": workers,
        "gbit": gbit,
        "step_ms": ms,
        "times_dense": faster,
    }


def check(method, communication, average):
    return {
        "method": method,
        "workers": "2",
        "rate": "1gbit",
        "communication_error": communication,
        "average_error": average,
    }


CHECKS = [
    check("dense()", "-10.0", "-20.0"),
    check("error_feedback(sign())", "30.0", "5.0"),
    check("error_feedback(top_k(0.01))", "-20.0", ""),
]


def test_the_fastest_compressor_of_each_network():
    rows = [
        step("dense()", "8", "1", "200", "1.0"),
        step("error_feedback(two_phase(sign()))", "8", "1", "100", "2.0"),
        step("dense()", "8", "100", "110", "1.0"),
        step("error_feedback(two_phase(sign()))", "8", "100", "120", "0.917"),
    ]
    assert page.best(rows) == [
        {"workers": "8", "1 Gbit/s": "`two_phase(sign())`, 2.0×", "100 Gbit/s": "`dense()`, 1.0×"}
    ]


def test_errors_are_medians_and_the_farthest():
    (line,) = page.summary(CHECKS)
    assert line["communication: error"] == "20 %" and line["worst"] == "+30 %"
    assert line["whole average: error"] == "12 %" and line["worst of them"] == "−20 %"
    assert line["dense"] == "−20 %"
    assert (line["averages"], line["whole averages"]) == (3, 2)


def test_all_checks_in_a_sentence():
    assert page.sentence(CHECKS) == (
        "For the communication of 3 averages the model was 20 % off in the median (at worst"
        " +30 %), and for the 2 of them whose compression it has too, 12 % (at worst −20 %)."
    )


def test_the_model_is_beside_the_averages_that_the_network_page_shows():
    commits = dict.fromkeys(row["commit"] for row in read_csv("network.csv"))
    checked = {row["network_commit"] for row in read_csv("scaling_checks.csv")}
    assert checked == {" ".join(commits)}, "run: python -m benchmarks.scaling"
