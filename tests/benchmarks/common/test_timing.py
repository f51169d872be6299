"""Times taken in turns, and their ratios."""

from benchmarks.common.timing import WARM_UP, in_turns, milliseconds, ratio


def test_candidates_take_turns_and_the_first_runs_are_left_out():
    order: list[str] = []
    timers = {name: lambda name=name: order.append(name) or float(len(order)) for name in "ab"}
    times = in_turns(timers, repeats=3)
    assert order == ["a", "b"] * (WARM_UP + 3)
    assert times == {"a": [5.0, 7.0, 9.0], "b": [6.0, 8.0, 10.0]}


def test_a_round_that_was_slow_for_all_does_not_change_a_ratio():
    assert ratio([2.0, 200.0, 2.0], [1.0, 100.0, 1.0]) == 2.0


def test_a_run_takes_time():
    assert milliseconds(lambda: sum(range(1000))) > 0
