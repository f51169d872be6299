"""Long messages arrive whole and in order, whichever way they travel between processes on CPUs."""

from collections import Counter

import jax
import numpy as np
import pytest
from helpers import assert_same_bits, random_updates, run, runner, slow
from jax.sharding import PartitionSpec as P
from subprocesses import free_port, joined, lines_of, run_together

import jaxcompress
from jaxcompress import cast, one_phase, qsgd, sign, two_phase
from jaxcompress.collectives.long_messages import (
    LEAST_BYTES,
    LEAST_ROW_BYTES,
    gather_words,
    rounds_of_pairs,
    send_rows,
)

LONG = LEAST_ROW_BYTES // 4  # words

IN_TWO_PROCESSES = f"""
import jax, numpy as np
from jax.sharding import PartitionSpec as P
from jaxcompress.collectives.long_messages import send_rows

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

# At XLA's own settings, of which tests elsewhere change some to compile faster.
AVERAGES = f"""
import hashlib, os
del os.environ["XLA_FLAGS"]
import numpy as np
from jax.sharding import PartitionSpec as P

mesh = jaxcompress.data_mesh()
workers = jax.process_count()
x = np.random.default_rng(0).normal(size=(workers, 5 * {LONG})).astype(np.float32)
for text in ("cast('bfloat16')", "two_phase(cast('bfloat16'))", "two_phase(qsgd(4))"):
    compressor = jaxcompress.error_feedback(jaxcompress.parse(text))

    def steps(x):
        key, state = jax.random.key(0), compressor.init(jax.random.key(0), x[0])
        means = []
        for step in range(2):
            reduced, state = compressor.reduce(key, 0.3 * x[0] + step, state, "data")
            means.append(reduced.mean)
        return means

    step = jax.shard_map(steps, mesh=mesh, in_specs=P("data"), out_specs=P())
    own = jaxcompress.shard_batch(x[jax.process_index() :][:1], mesh)
    means = jax.jit(step)(own)
    means = np.stack([mean.addressable_data(0) for mean in means])
    # What is not sent in one step is sent in the next.
    exact = 0.3 * x.mean(axis=0) + np.arange(2)[:, None]
    error = np.abs((means - exact).sum(axis=0)).max()
    assert error < (2 if "qsgd" in text else 0.02), error
    print(text, hashlib.sha256(means.tobytes()).hexdigest())
"""


@pytest.fixture
def join_processes(monkeypatch):
    """A function from whose call on programs are traced as of several processes; they run in one
    too.
    """

    def join():
        runner.cache_clear()  # which has traced the program of one process
        monkeypatch.setattr("jaxcompress._compat.joined_processes", lambda: 2)

    yield join
    runner.cache_clear()


@pytest.fixture
def between_processes(join_processes):
    join_processes()


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


@pytest.mark.parametrize("workers", range(2, 21, 2))
def test_in_all_rounds_each_pair_meets_once(workers):
    rounds = rounds_of_pairs(workers)
    assert len(rounds) == workers - 1
    for pairs in rounds:
        assert sorted(one for pair in pairs for one in pair) == list(range(workers))
    met = Counter(frozenset(pair) for pairs in rounds for pair in pairs)
    assert set(met.values()) == {1}
    assert len(met) == workers * (workers - 1) // 2


@pytest.mark.parametrize("words", [LONG, LONG + 1])
@pytest.mark.parametrize("workers", [2, 3, 4, 5, 6, 8])
@pytest.mark.usefixtures("between_processes")
def test_long_rows_arrive_in_rounds(workers, words):
    rng = np.random.default_rng(workers)
    rows = rng.integers(0, 2**32, (workers, workers, words), np.uint32)
    received, traffic = sent_by(rows)
    np.testing.assert_array_equal(received, rows.swapaxes(0, 1))
    operation = "collective-permute" if workers % 2 else "all-reduce"
    assert [each.operation for each in traffic.collectives] == [operation] * (workers - 1)
    assert traffic.wire_bytes == 4 * words * (workers - 1)


@pytest.mark.parametrize(("workers", "words"), [(4, LONG - 1), (2, LEAST_BYTES // 4 - 1)])
@pytest.mark.usefixtures("between_processes")
def test_short_rows_take_one_collective(workers, words):
    rows = np.arange(workers * workers * words, dtype=np.uint32).reshape(workers, workers, words)
    received, traffic = sent_by(rows)
    np.testing.assert_array_equal(received, rows.swapaxes(0, 1))
    assert [each.operation for each in traffic.collectives] == ["all-to-all"]


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
    """Groups and permutes would count the workers in the order of the mesh."""
    mesh = jax.make_mesh((2, 2), ("fsdp", "data"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rows = np.random.default_rng(0).integers(0, 2**32, (4, 4, LONG), np.uint32)
    step = jax.shard_map(
        lambda x: send_rows(x[0], axes)[None], mesh=mesh, in_specs=P(axes), out_specs=P(axes)
    )
    np.testing.assert_array_equal(jax.jit(step)(rows), rows.swapaxes(0, 1))


# Signs of this gradient are long messages whatever the route and the number of workers, where
# messages are long from so many words on.
FEW_WORDS = 1024
GRADIENT = np.zeros(4 * 32 * FEW_WORDS + 5, np.float32)


@pytest.fixture
def few_words_are_long(monkeypatch):
    """Whole gradients of long messages take the tests seconds each."""
    for name in ("LEAST_BYTES", "LEAST_ROW_BYTES"):
        monkeypatch.setattr(f"jaxcompress.collectives.long_messages.{name}", 4 * FEW_WORDS)


def traced_with(compressor, workers, how="shard_map"):
    """The operations of the traced program."""
    step = runner(compressor, workers, how)
    inputs = jax.random.key(1), random_updates(1, GRADIENT, workers), ()
    traced, compiled = jaxcompress.traffic(step, *inputs)
    assert traced.wire_bytes == compiled.wire_bytes
    return [each.operation for each in traced.collectives]


@pytest.mark.parametrize(
    ("compressor", "workers", "expected"),
    [
        (one_phase(cast("bfloat16")), 2, ["all-reduce"]),
        (one_phase(sign()), 2, ["all-reduce"]),
        (one_phase(sign()), 3, ["all-gather"]),
        (two_phase(qsgd(4)), 2, ["all-reduce"] * 2),
        (two_phase(cast("bfloat16")), 3, ["collective-permute"] * 2 + ["all-gather"]),
        (two_phase(sign()), 4, ["all-reduce"] * 3 + ["all-gather"]),
    ],
    ids=str,
)
@pytest.mark.usefixtures("few_words_are_long")
def test_schemes_have_the_same_bits_by_both_ways(compressor, workers, expected, join_processes):
    updates = random_updates(1, GRADIENT, workers)
    plain, found = run(compressor, updates, ()), traced_with(compressor, workers)
    assert "all-reduce" not in found and "collective-permute" not in found
    join_processes()
    assert traced_with(compressor, workers) == expected
    between = run(compressor, updates, ())
    assert_same_bits(between.mean, plain.mean)
    assert_same_bits(between.residual, plain.residual)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.usefixtures("few_words_are_long")
def test_virtual_workers_send_nothing_and_have_the_same_bits(workers, join_processes):
    updates = random_updates(1, GRADIENT, workers)
    plain = run(two_phase(sign()), updates, (), how="vmap")
    join_processes()
    assert_same_bits(run(two_phase(sign()), updates, (), how="vmap").mean, plain.mean)


@pytest.mark.usefixtures("between_processes")
def test_the_mean_of_two_workers_still_varies_along_another_axis():
    """Each of two models has an average of its own, which JAX must not take for replicated."""
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    words = np.random.default_rng(0).normal(size=(2, 2, LEAST_BYTES)).astype(np.float32)
    compressor = one_phase(cast("bfloat16"))

    def mean_with(out):
        step = jax.shard_map(
            lambda x: compressor.reduce(jax.random.key(0), x[0, 0], (), "data")[0].mean[None],
            mesh=mesh,
            in_specs=P("data", "model"),
            out_specs=out,
        )
        return np.asarray(jax.jit(step)(words))

    rounded = words.astype(jax.numpy.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(mean_with(P("model")), rounded.mean(axis=0))
    with pytest.raises(ValueError, match="model"):
        mean_with(P())


@pytest.mark.usefixtures("between_processes")
def test_averages_of_several_models_are_batched():
    """A step may average the gradients of several models at once, by `jax.vmap`."""
    mesh = jaxcompress.data_mesh(2)
    gradients = np.random.default_rng(0).normal(size=(2, 3, LEAST_BYTES)).astype(np.float32)
    compressor = two_phase(cast("bfloat16"))

    def average(x):
        return compressor.reduce(jax.random.key(0), x, (), "data")[0].mean

    step = jax.shard_map(
        lambda x: jax.vmap(average)(x[0]), mesh=mesh, in_specs=P("data"), out_specs=P()
    )
    found = jax.jit(step)(gradients)
    for model in range(3):
        alone = jax.shard_map(lambda x: average(x[0]), mesh=mesh, in_specs=P("data"), out_specs=P())
        np.testing.assert_array_equal(found[model], jax.jit(alone)(gradients[:, model]))


@pytest.mark.parametrize("exchange", [gather_words, send_rows])
@pytest.mark.usefixtures("between_processes")
def test_what_is_subtracted_is_not_computed_again(exchange):
    """XLA's fusion could compute it twice, once for the sum and once to subtract, and round
    otherwise.
    """

    def step(x):
        words = jax.lax.bitcast_convert_type(x, np.uint32) ^ np.uint32(12345)
        return exchange(words[0] if exchange is gather_words else words, "data")

    sharded = jax.shard_map(
        step, mesh=jaxcompress.data_mesh(2), in_specs=P("data"), out_specs=P("data")
    )
    rows = np.zeros((2 if exchange is gather_words else 4, LONG), np.float32)
    compiled = jax.jit(sharded).lower(rows).compile().as_text()
    assert " all-reduce(" in compiled
    assert compiled.count(" xor(") == 1


@pytest.mark.parametrize("workers", [2, *slow(3)])
def test_replicas_are_equal_between_processes(workers):
    port = free_port()
    programs = [joined(AVERAGES, place, workers, port) for place in range(workers)]
    lines = lines_of(run_together(programs))
    assert len(lines[0]) == 3
    assert all(each == lines[0] for each in lines)


def test_rows_arrive_between_two_processes_of_two_devices():
    port = free_port()
    programs = [joined(IN_TWO_PROCESSES, place, 2, port, devices=2) for place in range(2)]
    lines = [line for lines in lines_of(run_together(programs)) for line in lines]
    lengths = (LONG - 1, LONG, LONG + 1)
    assert sorted(lines) == sorted(f"{worker} {words}" for worker in range(4) for words in lengths)
