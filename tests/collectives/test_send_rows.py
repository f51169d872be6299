"""Every row arrives, whole and in order, and no two workers send to each other at the same time."""

from collections import Counter

import jax
import numpy as np
import pytest
from helpers import assert_same_bits, random_updates, run, runner
from jax.sharding import PartitionSpec as P
from subprocesses import free_port, joined, lines_of, run_together

import jaxcompress
from jaxcompress import cast, sign, two_phase
from jaxcompress.collectives.send_rows import LEAST_ROW_BYTES, one_way_rounds, send_rows

LONG = LEAST_ROW_BYTES // 4  # words

IN_TWO_PROCESSES = f"""
import jax, numpy as np
from jax.sharding import PartitionSpec as P
from jaxcompress.collectives.send_rows import send_rows

mesh = jaxcompress.data_mesh()
for words in ({LONG - 1}, {LONG}, {LONG + 1}):
    rows = np.random.default_rng(words).integers(0, 2**32, (4, 4, words), np.uint32)
    sharded = jaxcompress.shard_batch(rows[2 * jax.process_index() :][:2], mesh)
    step = jax.shard_map(
        lambda x: send_rows(x[0], "data")[None], mesh=mesh, in_specs=P("data"), out_specs=P("data")
    )
    for shard in jax.jit(step)(sharded).addressable_shards:
        worker = shard.index[0].start
        np.testing.assert_array_equal(shard.data[0], rows[:, worker])
        print(worker, words)
"""


@pytest.fixture
def between_processes(monkeypatch):
    """Traces the program of several processes, which runs in one too."""
    monkeypatch.setattr("jaxcompress._compat.joined_processes", lambda: 2)


def sent_by(rows: np.ndarray):
    """What every worker receives, and the collectives of the program, over as many devices."""
    mesh = jaxcompress.data_mesh(len(rows))
    step = jax.jit(
        jax.shard_map(
            lambda x: send_rows(x[0], "data")[None],
            mesh=mesh,
            in_specs=P("data"),
            out_specs=P("data"),
        )
    )
    traced, compiled = jaxcompress.traffic(step, rows)
    assert traced.wire_bytes == compiled.wire_bytes
    return np.asarray(step(rows)), traced


@pytest.mark.parametrize("workers", range(3, 20))
def test_after_all_rounds_each_has_sent_to_each_and_none_meets_another(workers):
    sent: Counter = Counter()
    rounds = one_way_rounds(workers)
    for receivers, halves in rounds:
        assert sorted(receivers) == list(range(workers))
        for sender, receiver in enumerate(receivers):
            assert receivers[receiver] != sender
            of_row = (0, 1) if halves is None else (halves[sender],)
            sent.update((sender, receiver, half) for half in of_row)
    pairs = [(a, b) for a in range(workers) for b in range(workers) if a != b]
    assert sent == Counter((*pair, half) for pair in pairs for half in (0, 1))
    # Six rounds of half a row take as long as three.
    long = sum(1 if halves is None else 0.5 for _, halves in rounds)
    assert long == workers - 1


@pytest.mark.parametrize("words", [LONG, LONG + 1])
@pytest.mark.parametrize("workers", [3, 4, 6, 8])
@pytest.mark.usefixtures("between_processes")
def test_long_rows_arrive_by_permutes(workers, words):
    rng = np.random.default_rng(workers)
    rows = rng.integers(0, 2**32, (workers, workers, words), np.uint32)
    received, traffic = sent_by(rows)
    np.testing.assert_array_equal(received, rows.swapaxes(0, 1))
    assert {each.operation for each in traffic.collectives} == {"collective-permute"}
    # The middle word of an odd number is sent twice, by each of three connections.
    twice = 3 * 4 * (words % 2) * (workers % 2 == 0)
    assert traffic.wire_bytes == 4 * words * (workers - 1) + twice


@pytest.mark.parametrize(
    ("workers", "words", "expected"),
    [(4, LONG - 1, {"all-to-all"}), (2, LONG, {"all-reduce", "all-to-all"})],
)
@pytest.mark.usefixtures("between_processes")
def test_short_rows_and_those_of_two_workers_take_one_collective(workers, words, expected):
    rows = np.arange(workers * workers * words, dtype=np.uint32).reshape(workers, workers, words)
    received, traffic = sent_by(rows)
    np.testing.assert_array_equal(received, rows.swapaxes(0, 1))
    assert {each.operation for each in traffic.collectives} == expected


def test_one_process_takes_one_collective():
    rows = np.zeros((4, 4, LONG), np.uint32)
    _, traffic = sent_by(rows)
    assert [each.operation for each in traffic.collectives] == ["all-to-all"]


@pytest.mark.usefixtures("between_processes")
def test_rows_arrive_along_one_axis_of_two():
    mesh = jax.make_mesh((2, 4), ("fsdp", "data"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rows = np.random.default_rng(0).integers(0, 2**32, (2, 4, 4, LONG), np.uint32)
    of_worker = P("fsdp", "data")
    step = jax.shard_map(
        lambda x: send_rows(x[0, 0], "data")[None, None],
        mesh=mesh,
        in_specs=of_worker,
        out_specs=of_worker,
    )
    np.testing.assert_array_equal(jax.jit(step)(rows), rows.swapaxes(1, 2))


@pytest.mark.parametrize("axes", [("fsdp", "data"), ("data", "fsdp")])
@pytest.mark.usefixtures("between_processes")
def test_rows_of_two_axes_are_in_the_order_of_their_names(axes):
    """A permute would count the workers in the order of the mesh."""
    mesh = jax.make_mesh((2, 2), ("fsdp", "data"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rows = np.random.default_rng(0).integers(0, 2**32, (4, 4, LONG), np.uint32)
    step = jax.shard_map(
        lambda x: send_rows(x[0], axes)[None], mesh=mesh, in_specs=P(axes), out_specs=P(axes)
    )
    np.testing.assert_array_equal(jax.jit(step)(rows), rows.swapaxes(0, 1))


@pytest.mark.parametrize("compressor", [cast("bfloat16"), sign()])
def test_two_phases_have_the_same_bits_by_both_ways(compressor, monkeypatch):
    updates = random_updates(1, np.zeros(4 * 32 * LONG + 5, np.float32), 4)
    plain = run(two_phase(compressor), updates, ())
    monkeypatch.setattr("jaxcompress._compat.joined_processes", lambda: 2)
    runner.cache_clear()  # which has traced the program of one process
    by_permutes = runner(two_phase(compressor), 4, "shard_map")
    traced, _ = jaxcompress.traffic(by_permutes, jax.random.key(1), updates, ())
    assert "collective-permute" in {each.operation for each in traced.collectives}
    by_rounds = run(two_phase(compressor), updates, ())
    assert_same_bits(by_rounds.mean, plain.mean)
    assert_same_bits(by_rounds.residual, plain.residual)
    runner.cache_clear()


def test_rows_arrive_between_two_processes_of_two_devices():
    port = free_port()
    programs = [joined(IN_TWO_PROCESSES, place, 2, port, devices=2) for place in range(2)]
    lines = [line for lines in lines_of(run_together(programs)) for line in lines]
    lengths = (LONG - 1, LONG, LONG + 1)
    assert sorted(lines) == sorted(f"{worker} {words}" for worker in range(4) for words in lengths)
