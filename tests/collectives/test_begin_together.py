"""Long messages between processes on CPUs start together; nothing else waits."""

import re

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_same_bits, random_updates, run, runner

import jaxcompress
from jaxcompress import cast, one_phase, sign, two_phase
from jaxcompress.collectives.begin_together import LEAST_BYTES

WORKERS = 2
LONG = jnp.zeros(2 * WORKERS * LEAST_BYTES * 8)  # in signs, whatever the route, longer than needed
ROUTES = pytest.mark.parametrize(
    ("route", "sends"), [(one_phase, ["all-gather"]), (two_phase, ["all-to-all", "all-gather"])]
)


@pytest.fixture
def between_processes(monkeypatch):
    """Traces the program of several processes, which runs in one too."""
    monkeypatch.setattr("jaxcompress._compat.joined_processes", lambda: WORKERS)


def collectives_of(compressor, like):
    """The operations of the traced and of the compiled program."""
    step = runner(compressor, WORKERS, "shard_map")
    inputs = jax.random.key(0), random_updates(0, like, WORKERS), ()
    return [
        [each.operation for each in counted.collectives for _ in range(each.count)]
        for counted in jaxcompress.traffic(step, *inputs)
    ]


@ROUTES
@pytest.mark.usefixtures("between_processes")
def test_a_sum_comes_before_every_long_message(route, sends):
    for found in collectives_of(route(sign()), LONG):
        assert sorted(found) == sorted([*sends, *["all-reduce"] * len(sends)])


@pytest.mark.usefixtures("between_processes")
def test_the_sum_comes_after_the_last_word():
    """The sum reads the finished message, not the parts that it is made of."""
    updates = random_updates(0, [LONG, jnp.zeros(6)], WORKERS)  # padded to 128 words
    step = runner(one_phase(cast("bfloat16")), WORKERS, "shard_map")
    lines = step.lower(jax.random.key(0), updates, ()).compile().as_text().splitlines()
    made = {line.split(" = ")[0].strip(): line for line in lines if " = " in line}
    (total,) = (line for line in lines if " all-reduce(" in line)
    (word,) = re.findall(r"all-reduce\((%[\w.-]+)\)", total)
    (message,) = re.findall(r"fusion\((%[\w.-]+)\)", made[word])
    assert f" = u32[{LONG.size // 2 + 128}]" in made[message]


@ROUTES
@pytest.mark.usefixtures("between_processes")
def test_a_short_message_waits_for_nobody(route, sends):
    for found in collectives_of(route(sign()), jnp.zeros(4096)):
        assert sorted(found) == sorted(sends)


@pytest.mark.usefixtures("between_processes")
def test_three_workers_gather_along_a_ring_and_wait_for_nobody():
    step = runner(one_phase(sign()), 3, "shard_map")
    inputs = jax.random.key(0), random_updates(0, LONG, 3), ()
    traced, _ = jaxcompress.traffic(step, *inputs)
    assert [each.operation for each in traced.collectives] == ["all-gather"]


@ROUTES
def test_one_process_waits_for_nobody(route, sends):
    for found in collectives_of(route(sign()), LONG):
        assert sorted(found) == sorted(sends)


@ROUTES
@pytest.mark.parametrize("how", ["shard_map", "vmap"])
def test_the_message_does_not_change(route, sends, how, monkeypatch):
    del sends
    updates = random_updates(1, LONG, WORKERS)
    plain = run(route(sign()), updates, (), how=how)
    monkeypatch.setattr("jaxcompress._compat.joined_processes", lambda: WORKERS)
    together = run(route(sign()), updates, (), how=how)
    assert_same_bits(together.mean, plain.mean)
    assert_same_bits(together.residual, plain.residual)
