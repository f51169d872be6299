"""The choice of a plan, by numbers that are written down."""

import pytest

import jaxcompress as jc
from jaxcompress.planning.choice import Option, Plan

TOP = jc.error_feedback(jc.top_k(0.01))


def option(compressor, network, update, kept):
    one = jc.Collective("all-gather", ("uint8",), int(network * 1e6), 2, axes=("data",))
    return Option(compressor, jc.Traffic((one,)), 0.0, 0.0, update, 0.0, kept, 0)


def plan_of(*options, overlap=0.0, least_kept=0.0, network_share=0.1, gradient_ms=40.0):
    links = jc.ideal_links(8e9)  # a megabyte takes a millisecond
    made = Plan(4, gradient_ms, overlap, least_kept, network_share, links, options, None)
    return made.over(links)


DENSE = option(jc.dense(), network=31, update=1, kept=1.0)
HALF = option(jc.cast("bfloat16"), network=15.5, update=1, kept=0.99)
STRONG = option(TOP, network=0.5, update=2, kept=0.2)


def test_the_shortest_step_wins():
    found = plan_of(DENSE, HALF, STRONG)
    assert found.chosen.compressor is TOP
    assert found.chosen.step_ms == pytest.approx(42.5)
    assert "1.69 times dense's steps per second" in str(found)


def test_among_equally_short_steps_the_one_that_keeps_most_wins():
    half = HALF._replace(update_ms=-12.0)
    assert plan_of(DENSE, half, STRONG).compressor is half.compressor


def test_a_hidden_network_is_not_compressed():
    found = plan_of(DENSE, HALF, STRONG, overlap=0.8)
    assert found.compressor is DENSE.compressor
    assert found.dense.exposed_ms == 0
    assert "dense(): do not compress; its network of 31.00 ms hides behind" in str(found)
    assert found.period == 1


def test_a_floor_of_what_is_kept_excludes():
    assert plan_of(DENSE, HALF, STRONG, least_kept=0.5).compressor is HALF.compressor
    floor = plan_of(DENSE, STRONG, least_kept=0.5)
    assert floor.compressor is DENSE.compressor
    assert "no option that keeps at least 0.5 is 5% faster" in floor.reason()
    assert floor.reason().endswith(
        f" {TOP!r} is faster, and excluded: a step keeps 0.200 of the gradient, and least_kept is"
        " 0.5."
    )
    assert "excluded" not in plan_of(DENSE, HALF, least_kept=0.5).reason()
    hardly = STRONG._replace(network_ms=0, update_ms=30.0, compressor=jc.sign())
    assert "excluded" not in plan_of(DENSE, hardly, least_kept=0.5).reason()


def test_dense_is_chosen_where_nothing_is_faster():
    slow = STRONG._replace(update_ms=60.0)
    assert "no option is 5% faster than its 72.00 ms" in plan_of(DENSE, slow).reason()


def test_the_period_makes_averaging_a_share_of_the_time():
    # Computing takes 41 ms and averaging 31: 31 / (7 · 41 + 31) = 9.7 %, and with 6 steps 11.2 %.
    assert plan_of(DENSE).period == 7
    assert plan_of(DENSE, network_share=1.0).period == 1
    assert plan_of(DENSE, STRONG).period == 1  # 1.5 of 41 ms
    slow = plan_of(DENSE, STRONG).over(jc.ideal_links(8e8))
    assert slow.period == 2
    assert "a period of 2" in slow.reason()
