"""`compress` as a link of an Optax chain: what travels dense, what it keeps, and what
it refuses.
"""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest
from helpers import (
    FLOAT32,
    WORKERS,
    assert_close,
    assert_same_bits,
    awkward_tree,
    mean_over_workers,
    random_updates,
    slow,
    slow_unless,
    vmap_axes,
)
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

import jaxcompress
from jaxcompress import (
    cast,
    dense,
    error_feedback,
    int_sum,
    parse,
    power_sgd,
    qsgd,
    state_specs,
    top_k,
    traffic,
)
from jaxcompress.distributed.placement import map_per_worker
from jaxcompress.transform import compress

TREE = {"kernel": jnp.zeros((40, 30)), "bias": jnp.zeros((40,)), "scale": jnp.zeros((8,))}


def rows_of(state, workers=WORKERS):
    """State as it stands outside a step."""
    return map_per_worker(lambda x: jnp.stack([x] * workers), state)


def by_shard_map(optimizer, mesh=None, axis_name="data"):
    """A jitted ``(updates of all workers, state, params) -> (updates, state)``; JAX proves that
    updates are equal.
    """
    mesh = mesh or jaxcompress.data_mesh(WORKERS)

    def one_worker(updates, state, params):
        own = jax.tree.map(lambda x: x[0], updates)
        updates, state = optimizer.update(own, jaxcompress.squeeze_worker_axis(state), params)
        return updates, jaxcompress.expand_worker_axis(state)

    def step(updates, state, params):
        specs = state_specs(state, axis_name)
        run = jax.shard_map(
            one_worker, mesh=mesh, in_specs=(P(axis_name), specs, P()), out_specs=(P(), specs)
        )
        return run(updates, state, params)

    return jax.jit(step)


def by_vmap(optimizer):
    """The same with virtual workers; updates have a row for each of them."""

    def step(updates, state, params):
        axes = vmap_axes(state)

        def one_worker(updates, state):
            return optimizer.update(updates, state, params)

        return jax.vmap(one_worker, in_axes=(0, axes), out_axes=(0, axes), axis_name="data")(
            updates, state
        )

    return jax.jit(step)


def one_update(optimizer, tree=TREE, updates=None):
    """Updates and state after one step of standard normal updates."""
    updates = random_updates(0, tree) if updates is None else updates
    return by_shard_map(optimizer)(updates, rows_of(optimizer.init(tree)), tree)


def remembered(state) -> dict[str, tuple]:
    """The shapes of the arrays that have an error memory, without their first axis of workers."""
    memory = state.inner[0].error.value.arrays
    return {name: x.shape[1:] for name, x in memory.items() if not isinstance(x, optax.MaskedNode)}


def test_arrays_that_would_not_shrink_travel_dense_and_have_no_memory():
    updates, state = one_update(compress(error_feedback(power_sgd(2))))
    means = mean_over_workers(random_updates(0, TREE))
    # 2 (40 + 30) of 1,200 numbers are 8.6 times less; a vector of rank 1 is itself and a factor of
    # one number.
    assert remembered(state) == {"kernel": (40, 30)}
    for name in ("bias", "scale"):
        np.testing.assert_allclose(updates[name], means[name], **FLOAT32)
    assert not np.allclose(updates["kernel"], means["kernel"], atol=0.1)


@pytest.mark.parametrize(
    ("rate", "bits"), [(0.0, 16), (1.9, 16), (2.0, 16), (2.001, 32), (8.0, 32)]
)
def test_an_array_is_compressed_from_just_that_rate_on(rate, bits):
    # bfloat16 is exactly half of float32.
    _, state = one_update(
        compress(cast("bfloat16"), min_compression_rate=rate), {"x": jnp.zeros((100,))}
    )
    assert float(state.bits) == 100 * bits


@pytest.mark.parametrize(("rate", "bits"), [(1.9, 512 * 16 + 32), (2.0, 512 * 32)])
def test_sums_of_16_bits_need_a_lower_rate_than_the_default(rate, bits):
    x = {"x": jnp.zeros((512,))}
    _, state = one_update(compress(int_sum(16), min_compression_rate=rate), x)
    assert float(state.bits) == bits


def test_rate_zero_compresses_all_even_what_grows():
    _, state = one_update(compress(error_feedback(qsgd(16, group=1)), min_compression_rate=0.0))
    assert remembered(state) == {"kernel": (40, 30), "bias": (40,), "scale": (8,)}
    # 16 bits and a scale of 32 for every entry, where the entry has 32.
    assert float(state.bits) == (1200 + 40 + 8) * 48


def test_all_dense_arrays_share_one_all_reduce():
    tree = {
        **{f"bias{i}": jnp.zeros((i + 1,)) for i in range(5)},
        "large": jnp.zeros((300, 300)),
        "half": jnp.zeros((7,), jnp.bfloat16),
        "matrix": jnp.zeros((64, 64)),
    }
    compressors = {"matrix": top_k(0.01), "rest": dense()}
    optimizer = compress(
        jaxcompress.partition(compressors, jaxcompress.by_path({"matrix": "matrix"}))
    )
    state = rows_of(optimizer.init(tree))
    _, compiled = traffic(by_shard_map(optimizer), random_updates(0, tree), state, tree)
    operations = [(each.operation, each.count) for each in compiled.collectives]
    assert operations.count(("all-reduce", 1)) == 1
    assert {operation for operation, _ in operations} == {"all-reduce", "all-gather"}


def test_dense_moves_what_a_plain_pmean_moves_in_the_same_collectives():
    plain = optax.stateless(lambda updates, params: jax.lax.pmean(updates, "data"))
    asked, moved = (
        [
            traffic(by_shard_map(one), random_updates(0, TREE), rows_of(one.init(TREE)), TREE)[
                place
            ]
            for one in (compress(dense()), plain)
        ]
        for place in (0, 1)
    )
    assert asked[0].payload_bytes == asked[1].payload_bytes
    assert moved[0] == moved[1]


@pytest.mark.parametrize(
    ("expression", "dtype"),
    slow_unless(
        [
            ("error_feedback(top_k(0.1))", jnp.bfloat16),
            ("error_feedback(power_sgd(2))", jnp.bfloat16),
            ("dense()", jnp.bfloat16),
            ("dense()", jnp.float32),
        ],
        ("error_feedback(top_k(0.1))", "error_feedback(power_sgd(2))", "dense()"),
        (jnp.bfloat16, jnp.float32),
    ),
)
def test_an_update_has_the_dtype_of_its_parameter(expression, dtype):
    tree = jax.tree.map(lambda x: x.astype(dtype), TREE)
    updates, _ = one_update(compress(parse(expression)), tree)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), updates) == jax.tree.map(
        lambda x: (x.shape, dtype), tree
    )


def test_shard_map_equals_vmap_and_both_keep_an_awkward_tree():
    tree = awkward_tree()
    optimizer = optax.chain(compress(error_feedback(top_k(0.1))), optax.sgd(0.1))
    updates, state = random_updates(0, tree), rows_of(optimizer.init(tree))
    on_devices, on_one = by_shard_map(optimizer), by_vmap(optimizer)
    for _ in range(2):
        of_devices, new_state = on_devices(updates, state, tree)
        of_vmap, state = on_one(updates, state, tree)
        assert jax.tree.structure(of_devices) == jax.tree.structure(tree)
        assert_close(of_devices, jax.tree.map(lambda x: x[0], of_vmap))
        assert_close(new_state[0].inner, state[0].inner)


def test_rows_of_a_vmap_are_workers_also_where_a_mesh_is_set():
    optimizer = compress(error_feedback(top_k(0.1)))
    updates, state = random_updates(0, TREE), rows_of(optimizer.init(TREE))
    expected = by_vmap(optimizer)(updates, state, TREE)
    with jax.set_mesh(jaxcompress.data_mesh(WORKERS)):
        found = by_vmap(optimizer)(updates, state, TREE)
    assert_close(found[0], expected[0])


def test_two_mesh_axes_are_as_many_workers_as_one():
    names = ("node", "gpu")
    mesh = Mesh(
        np.array(jax.devices()[:WORKERS]).reshape(2, 2), names, axis_types=(AxisType.Auto,) * 2
    )
    outcomes = []
    for optimizer, step in [
        ((one := compress(error_feedback(top_k(0.1)))), by_shard_map(one)),
        ((two := compress(error_feedback(top_k(0.1)), names)), by_shard_map(two, mesh, names)),
    ]:
        outcomes.append(step(random_updates(0, TREE), rows_of(optimizer.init(TREE)), TREE))
    (updates, state), (same_updates, same_state) = outcomes
    assert_close(same_updates, updates)
    assert_close(same_state.inner, state.inner)


def test_one_worker_sends_to_itself():
    x = random_updates(0, TREE, workers=1)
    optimizer = compress(top_k(0.1))
    updates, _ = by_shard_map(optimizer, jaxcompress.data_mesh(1))(
        x, rows_of(optimizer.init(TREE), 1), TREE
    )
    kernel = np.asarray(x["kernel"][0])
    expected = np.where(np.abs(kernel) >= np.sort(np.abs(kernel).ravel())[-120], kernel, 0)
    np.testing.assert_array_equal(updates["kernel"], expected)


@pytest.mark.parametrize(
    "tree", [{}, {"a": optax.MaskedNode(), "b": {"c": optax.MaskedNode()}}, {"a": None}]
)
def test_a_tree_without_arrays_sends_nothing(tree):
    optimizer = compress(error_feedback(power_sgd(2)))
    state = rows_of(optimizer.init(tree))
    updates, state = by_shard_map(optimizer)(tree, state, tree)
    assert updates == tree
    assert float(state.bits) == 0


@pytest.mark.parametrize(
    "expression",
    ["error_feedback(power_sgd(2))", "qsgd(4)", *slow("error_feedback(top_k(0.1))", "dense()")],
)
def test_state_bits_are_the_bytes_that_travel(expression):
    optimizer = compress(parse(expression))
    state, step = rows_of(optimizer.init(TREE)), by_shard_map(optimizer)
    _, after = step(random_updates(0, TREE), state, TREE)
    for counted in traffic(step, random_updates(0, TREE), state, TREE):
        assert 8 * counted.payload_bytes == float(after.bits)


def test_a_random_key_moves_on_and_begins_with_the_seed():
    tree = {"x": jnp.zeros((100,))}
    updates, step = random_updates(0, tree), by_shard_map(compress(qsgd(2)))

    def two_steps(seed):
        first, state = step(updates, rows_of(compress(qsgd(2), seed=seed).init(tree)), tree)
        second, _ = step(updates, state, tree)
        return np.asarray(first["x"]), np.asarray(second["x"])

    first, second = two_steps(seed=0)
    np.testing.assert_array_equal(two_steps(seed=0), (first, second))
    assert np.any(first != second)
    assert np.any(two_steps(seed=1)[0] != first)


def test_parameters_are_not_needed():
    optimizer = compress(error_feedback(power_sgd(2)))
    state = rows_of(optimizer.init(TREE))
    with_parameters, without = (
        by_shard_map(optimizer)(random_updates(0, TREE), state, it) for it in (TREE, None)
    )
    assert_same_bits(with_parameters, without)


def test_extra_arguments_that_nobody_expects_are_accepted():
    optimizer = optax.chain(compress(top_k(0.1)), optax.sgd(0.1))

    def update(updates):
        return optimizer.update(updates, optimizer.init(TREE), TREE, value=1.0, banana=jnp.ones(3))[
            0
        ]

    updates = jax.jit(jax.vmap(update, axis_name="data"))(random_updates(0, TREE))
    assert jax.tree.structure(updates) == jax.tree.structure(TREE)


def test_a_second_call_does_not_trace_again():
    traced = []
    optimizer = compress(
        error_feedback(parse("switch(warmup(1), dense(), top_k(0.1, inner=qsgd(4)))"))
    )
    counting = optax.stateless(lambda updates, params: (traced.append(1), updates)[1])
    optimizer = optax.chain(counting, optimizer)
    mesh = jaxcompress.data_mesh(WORKERS)
    step, state = by_shard_map(optimizer), jaxcompress.init_state(optimizer, TREE, mesh)
    for _ in range(3):
        _, state = step(random_updates(0, TREE), state, TREE)
    assert len(traced) == 1


EXPRESSIONS = [
    "error_feedback(top_k(0.1))",
    "monitor(error_feedback(power_sgd(2, inner=cast('bfloat16'))))",
    "error_feedback(switch(warmup(2), dense(), qsgd(4)))",
    "partition({'matrix': power_sgd(2), 'rest': error_feedback(top_k(0.1))}, by_shape())",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_init_needs_shapes_only(expression):
    optimizer, tree = compress(parse(expression)), awkward_tree()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
    assert_same_bits(optimizer.init(shapes), optimizer.init(tree))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_map_params_finds_what_is_shaped_as_the_parameters(expression):
    optimizer = optax.chain(compress(parse(expression)), optax.adam(0.1))
    state = optimizer.init(TREE)
    assert_same_bits(optax.tree.map_params(optimizer, lambda x: x, state), state)


def test_map_params_maps_the_error_memory():
    optimizer = compress(error_feedback(top_k(0.1)), min_compression_rate=0.0)
    state = optax.tree.map_params(optimizer, lambda x: x + 1, optimizer.init(TREE))
    assert_same_bits(state.inner[0].error.value.arrays, jax.tree.map(jnp.ones_like, TREE))


def test_parameters_without_a_gradient_stay_where_they_are():
    optimizer = optax.chain(
        compress(error_feedback(parse("top_k(0.1, inner=qsgd(8))"))), optax.sgd(0.1)
    )
    mesh = jaxcompress.data_mesh(WORKERS)

    def loss_fn(params, extra, batch):
        return jnp.mean(jnp.square(batch @ params["used"])), (extra, {})

    unused = np.arange(100, dtype=np.float32)
    params = jaxcompress.replicate({"used": np.ones((30, 20), np.float32), "unused": unused}, mesh)
    state = jaxcompress.init_state(optimizer, params, mesh)
    batch = jaxcompress.shard_batch(
        np.random.default_rng(0).standard_normal((8, 30), np.float32), mesh
    )
    params, state, *_ = jaxcompress.make_train_step(loss_fn, optimizer, mesh)(
        params, state, {}, batch
    )
    np.testing.assert_array_equal(params["unused"], unused)
    assert np.any(np.asarray(params["used"]) != 1)
    assert not np.any(np.asarray(state[0].inner[0].error.value.arrays["unused"]))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_clipping_stands_before_or_after(shape):
    updates = {"x": 100 * random_updates(0, {"x": jnp.zeros(shape)})["x"]}
    tree = {"x": jnp.zeros(shape)}
    x = np.asarray(updates["x"], np.float64)
    norms = np.sqrt(np.square(x).sum(axis=(1, 2), keepdims=True))
    before, _ = one_update(
        optax.chain(optax.clip_by_global_norm(1.0), compress(dense())), tree, updates
    )
    np.testing.assert_allclose(before["x"], (x / norms).mean(axis=0), **FLOAT32)
    after, _ = one_update(
        optax.chain(compress(dense()), optax.clip_by_global_norm(1.0)), tree, updates
    )
    np.testing.assert_allclose(
        after["x"], x.mean(axis=0) / np.linalg.norm(x.mean(axis=0)), **FLOAT32
    )


def test_without_the_axis_it_says_where_it_must_run():
    optimizer = compress(top_k(0.1), "workers")
    words = (
        r"no mesh axis 'workers' here.*jax\.shard_map or jax\.vmap\(\.\.\.,"
        r" axis_name='workers'\).*make_train_step"
    )
    with pytest.raises(ValueError, match=words):
        optimizer.update(TREE, optimizer.init(TREE))
    with pytest.raises(ValueError, match=words):
        by_vmap(optimizer)(random_updates(0, TREE), optimizer.init(TREE), TREE)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("compressor", [None, 0.01, top_k, optax.adam(0.1)])
def test_what_is_no_compressor_is_refused(compressor):
    with pytest.raises(
        ValueError,
        match=r"compress takes a compressor, such as error_feedback\(top_k\(0.01\)\); got",
    ):
        compress(compressor)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_text_is_refused_with_the_way_to_read_it():
    with pytest.raises(ValueError, match=r"jaxcompress\.parse\('top_k\(0\.1\)'\) makes one"):
        compress("top_k(0.1)")


@pytest.mark.parametrize("rate", [-1.0, -1e-9, float("nan")])
def test_a_rate_below_zero_is_refused(rate):
    with pytest.raises(
        ValueError, match=f"min_compression_rate is a ratio of sizes, at least 0; got {rate}"
    ):
        compress(top_k(0.1), min_compression_rate=rate)


@pytest.mark.parametrize("rate", [np.float64(2), np.float32(2), np.int64(2), 2])
def test_a_rate_from_numpy_is_a_rate(rate, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    state = compress(error_feedback(top_k(0.1)), min_compression_rate=rate).init(TREE)
    assert [x.shape for x in jax.tree.leaves(state.inner)] == [(40,), (40, 30), (8,)]


def test_a_state_with_all_workers_rows_is_refused_inside_a_step():
    optimizer, mesh = compress(error_feedback(top_k(0.1))), jaxcompress.data_mesh(WORKERS)
    state = jaxcompress.init_state(optimizer, TREE, mesh)
    specs = state_specs(state)

    def forgets_own_part(updates, state):
        return optimizer.update(jax.tree.map(lambda x: x[0], updates), state)

    step = jax.shard_map(
        forgets_own_part, mesh=mesh, in_specs=(P("data"), specs), out_specs=(P(), specs)
    )
    with pytest.raises(
        ValueError,
        match=r"has the shape \(1, 40\), where one worker needs .*squeeze_worker_axis\(opt_state\)",
    ):
        jax.jit(step)(random_updates(0, TREE), state)


def test_a_state_of_other_parameters_is_refused():
    optimizer = compress(error_feedback(top_k(0.1)))
    state = optimizer.init({"other": jnp.zeros((50, 50))})
    with pytest.raises(
        ValueError,
        match="'0/error/value/arrays/bias' is in one only: it belongs to other parameters",
    ):
        jax.eval_shape(
            jax.vmap(lambda x: optimizer.update(x, state)[0], axis_name="data"),
            random_updates(0, TREE),
        )


def test_a_message_of_more_than_two_to_the_31_bits_is_counted():
    huge = {
        "huge": jax.ShapeDtypeStruct((70_000_000,), jnp.float32),
        "small": jax.ShapeDtypeStruct((64,), jnp.float32),
    }
    text = (
        "partition({'big': dense(), 'rest': switch(warmup(2), dense(), top_k(0.1))},"
        " by_path({'huge': 'big'}))"
    )
    optimizer = compress(parse(text), min_compression_rate=0.0)

    def step(updates):
        return optimizer.update(updates, optimizer.init(updates))[1].bits

    rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), huge)
    assert jax.eval_shape(jax.vmap(step, axis_name="data"), rows).dtype == jnp.float32


def collectives_of(optimizer):
    """Operation and payload of each collective of one update of TREE."""
    state, updates = rows_of(optimizer.init(TREE)), random_updates(0, TREE)
    asked, moved = traffic(by_shard_map(optimizer), updates, state, TREE)
    assert asked.payload_bytes == moved.payload_bytes
    return [(each.operation, each.payload_bytes) for each in asked.collectives]


@pytest.mark.usefixtures("as_users_run_it")
def test_a_scheme_that_was_not_called_says_so():
    with pytest.raises(ValueError, match=r"got <function top_k.*; call it, with its arguments"):
        compress(top_k)


def test_buckets_travel_apart_and_send_the_same():
    # No two of 32, 4,800 and 160 bytes, in the order from the end of the tree, fit a bucket of 200.
    whole, apart = (
        collectives_of(
            compress(error_feedback(top_k(0.1)), min_compression_rate=1.0, bucket_bytes=size)
        )
        for size in (None, 200)
    )
    assert [operation for operation, _ in whole] == ["all-gather"]
    assert [operation for operation, _ in apart] == ["all-gather"] * 3
    assert sum(size for _, size in apart) == sum(size for _, size in whole)


def test_buckets_change_no_average():
    updates = random_updates(1, TREE)
    means = []
    for size in (None, 1, 200, 5000):
        optimizer = compress(error_feedback(top_k(0.1)), bucket_bytes=size)
        mean, state = by_shard_map(optimizer)(updates, rows_of(optimizer.init(TREE)), TREE)
        means.append((mean, state.bits))
    for each in means[1:]:
        assert_same_bits(each, means[0])


def test_the_state_of_other_buckets_is_refused():
    one, several = compress(top_k(0.1)), compress(top_k(0.1), bucket_bytes=1)
    with pytest.raises(
        ValueError, match=r"0 arrays in 1 buckets, and these updates need 0 in 3.*bucket_bytes"
    ):
        jax.vmap(lambda x: several.update(x, one.init(TREE)), axis_name="data")(
            random_updates(2, TREE)
        )


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("axis_name", [3, "", (), ("data", None), ["data"], ("data", "data")])
def test_what_names_no_axis_is_refused(axis_name):
    with pytest.raises(
        ValueError,
        match="axis_name is a mesh axis by name, or a tuple of different ones; got",
    ):
        compress(top_k(0.1), axis_name)


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(ValueError, match="seed is an integer of at least 0; got"):
        compress(top_k(0.1), seed=seed)


@pytest.mark.parametrize("bucket_bytes", [0, -1, True])
def test_what_is_no_size_of_a_bucket_is_refused(bucket_bytes):
    with pytest.raises(
        ValueError, match=f"bucket_bytes is the size .* at least 1; got {bucket_bytes}"
    ):
        compress(top_k(0.1), bucket_bytes=bucket_bytes)


# Dense steps of other optimizers


@pytest.mark.parametrize("bucket_bytes", [None, 200])
def test_a_dense_step_averages_everything_and_keeps_the_state(bucket_bytes):
    optimizer = compress(error_feedback(top_k(0.1)), bucket_bytes=bucket_bytes)
    _, state = one_update(optimizer)
    updates = random_updates(1, TREE)
    dense_step = by_shard_map(
        optax.GradientTransformationExtraArgs(
            optimizer.init,
            lambda x, state, params: optimizer.update(x, state, params, send_dense=True),
        )
    )
    found, after = dense_step(updates, state, TREE)
    assert_close(found, jax.tree.map(np.float32, mean_over_workers(updates)))
    assert_same_bits(after._replace(bits=state.bits), state)
    assert float(after.bits) == 32 * (1200 + 40 + 8)
    (_, compiled) = traffic(dense_step, updates, state, TREE)
    assert {each.operation for each in compiled.collectives} == {"all-reduce"}
    assert 8 * compiled.payload_bytes == float(after.bits)


# The transformation of averages that travel dense

WITH_MOMENTUM = {
    "momentum_correction(top_k(0.1))": [0.9**age for age in range(4)],
    "monitor(momentum_correction(top_k(0.1), momentum=0.5))": [0.5**age for age in range(4)],
    "ef21_sgdm(top_k(0.1), momentum=0.8)": [0.2 * 0.8**age for age in range(4)],
    "momentum_correction(top_k(0.1), nesterov=True)": [1.9, 0.81, 0.729, 0.6561],
    "error_feedback(top_k(0.1))": [1.0, 0.0, 0.0, 0.0],
}


def dense_steps(text, steps):
    """The updates of so many steps in which all arrays travel dense, and the last state."""
    optimizer = compress(parse(text), min_compression_rate=1e9)
    step, state, found = by_shard_map(optimizer), rows_of(optimizer.init(TREE)), []
    for updates in steps:
        mean, state = step(updates, state, TREE)
        found.append(mean)
    return found, state


@pytest.mark.parametrize("text", WITH_MOMENTUM)
def test_dense_arrays_have_the_momentum_of_the_average(text):
    steps = [random_updates(seed, TREE) for seed in range(4)]
    found, _ = dense_steps(text, steps)
    means = [mean_over_workers(updates) for updates in steps]
    for last in range(4):
        for name in TREE:
            weighted = zip(WITH_MOMENTUM[text], reversed(means[: last + 1]), strict=False)
            expected = sum(weight * mean[name] for weight, mean in weighted)
            np.testing.assert_allclose(found[last][name], expected, **FLOAT32)


def test_each_label_of_a_partition_has_a_momentum_of_its_own():
    texts = {
        "kernel": "momentum_correction(top_k(0.1))",
        "bias": "ef21_sgdm(top_k(0.1), momentum=0.8)",
        "scale": "error_feedback(top_k(0.1))",
    }
    pairs = ", ".join(f"'{name}': {text}" for name, text in texts.items())
    labels = "by_path({'kernel': 'kernel', 'bias': 'bias', 'scale': 'scale'})"
    steps = [random_updates(seed, TREE) for seed in range(3)]
    found, _ = dense_steps(f"partition({{{pairs}}}, {labels})", steps)
    for name, text in texts.items():
        expected, _ = dense_steps(text, steps)
        assert_same_bits([one[name] for one in found], [one[name] for one in expected])


@pytest.mark.parametrize("text", ["momentum_correction(top_k(0.1))", "ef21_sgdm(top_k(0.1))"])
def test_one_step_that_is_not_finite_does_not_stay_in_a_dense_momentum(text):
    good = random_updates(0, TREE)
    bad = good | {"bias": good["bias"].at[1, 2].set(np.nan)}
    found, _ = dense_steps(text, [good, bad, good])
    (expected, *_), _ = dense_steps(text, [good])
    assert np.isnan(found[1]["bias"]).sum() == 1 and np.isnan(found[1]["bias"][2])
    # Of this entry the step with a NaN left the momentum as it was.
    twice, _ = dense_steps(text, [good, good])
    for name in TREE:
        assert np.isfinite(found[2][name]).all()
    np.testing.assert_allclose(found[2]["bias"][2], twice[1]["bias"][2], **FLOAT32)
    assert np.any(np.asarray(expected["bias"][2]) != np.asarray(found[2]["bias"][2]))


# Updates that have no average


def test_a_float16_mean_that_its_sum_or_a_memory_exceeds_stays_finite():
    rows = {"small": jnp.full((WORKERS, 3), 20_000, jnp.float16)}
    tree = {"small": rows["small"][0]}
    optimizer = compress(dense())

    def one_step(x):
        return optimizer.update(x, optimizer.init(tree), tree)[0]

    assert_same_bits(jax.vmap(one_step, axis_name="data")(rows), rows)
    # What three steps left in the memory is more than float16 holds.
    late = parse("error_feedback(switch(warmup(3), random_k(0.001), dense()))")
    once = compress(late, min_compression_rate=0)
    rows = {"x": jnp.full((WORKERS, 1000), 40_000, jnp.float16)}
    state = once.init({"x": rows["x"][0]})

    def steps(x):
        held = state
        for _ in range(4):
            mean, held = once.update(x, held, x)
        return mean

    mean = np.asarray(jax.vmap(steps, axis_name="data")(rows)["x"], np.float32)
    assert mean.max() == float(jnp.finfo(jnp.float16).max)


def test_float0_updates_pass_unchanged():
    tree = {"x": jnp.zeros((100,)), "count": jnp.zeros((3,), jnp.int32)}
    optimizer = compress(error_feedback(top_k(0.1)))

    def one_worker(x):
        def loss(params):
            return jnp.sum(jnp.square(params["x"] - x)) + 0.0 * params["count"].sum()

        grads = jax.grad(loss, allow_int=True)(tree)
        updates, state = optimizer.update(grads, optimizer.init(tree), tree)
        assert updates["count"].dtype == jax.dtypes.float0
        dense, _ = optimizer.update(grads, state, tree, send_dense=True)
        assert dense["count"].shape == (3,) and dense["count"].dtype == jax.dtypes.float0
        return updates["x"], dense["x"]

    rows = random_updates(0, {"x": tree["x"]})["x"]
    found, dense_mean = jax.jit(jax.vmap(one_worker, axis_name="data"))(rows)
    wide = np.asarray(rows, np.float64)
    np.testing.assert_allclose(dense_mean[0], -2 * wide.mean(axis=0), **FLOAT32)
    assert 0 < np.count_nonzero(found[0]) <= WORKERS * 10


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.uint8, jnp.bool_])
def test_integer_updates_are_refused_by_name(dtype):
    tree = {"kernel": jnp.zeros((4, 4)), "layer": {"count": jnp.zeros((3,), dtype)}}
    optimizer = compress(top_k(0.1))
    name = jnp.dtype(dtype).name
    with pytest.raises(
        ValueError, match=f"update of 'layer/count' is {name}, which has no average"
    ):
        jax.vmap(lambda x: optimizer.update(x, optimizer.init(tree)), axis_name="data")(
            jax.tree.map(lambda x: jnp.stack([x] * 2), tree)
        )


# Frozen parameters

KERNEL = {"kernel": True, "bias": False, "scale": False}
LABELS = {"kernel": "frozen", "bias": "trained", "scale": "trained"}
SGD = optax.chain(compress(error_feedback(top_k(0.1))), optax.sgd(1.0))


def trained(optimizer):
    """Parameters after one step of a loss of all of TREE, and what the step sends."""
    mesh = jaxcompress.data_mesh(WORKERS)

    def loss_fn(params, extra, batch):
        x = batch[:, :40] @ params["kernel"]
        return jnp.mean(jnp.square(x)) + jnp.sum(batch[:, :40] @ params["bias"]), (extra, {})

    start = jax.tree.map(lambda x: np.ones(x.shape, np.float32), TREE)
    batch = np.random.default_rng(0).standard_normal((8, 40), np.float32)
    params, batch = jaxcompress.replicate(start, mesh), jaxcompress.shard_batch(batch, mesh)
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(loss_fn, optimizer, mesh)
    _, compiled = traffic(step, params, state, {}, batch)
    return step(params, state, {}, batch)[0], compiled.payload_bytes


def test_parameters_frozen_after_compress_stay():
    params, _ = trained(optax.chain(SGD, optax.masked(optax.set_to_zero(), KERNEL)))
    np.testing.assert_array_equal(params["kernel"], np.ones((40, 30)))
    assert np.any(np.asarray(params["bias"]) != 1)


def test_parameters_frozen_around_the_chain_send_nothing():
    zeros = optax.stateless(lambda updates, params: optax.tree.zeros_like(params))
    params, sent = trained(optax.partition({"trained": SGD, "frozen": zeros}, LABELS))
    expected, everything = trained(SGD)
    np.testing.assert_array_equal(params["kernel"], np.ones((40, 30)))
    np.testing.assert_array_equal(params["bias"], expected["bias"])
    # Beside the kernel's 120 values there are only four of the bias.
    assert sent < everything / 4


def test_what_is_frozen_by_its_own_gradient_is_refused_with_the_way_out():
    optimizer = optax.partition({"trained": SGD, "frozen": optax.scale(0.0)}, LABELS)
    with pytest.raises(
        ValueError, match=r"updates at 'kernel' would differ .* after it, .*set_to_zero of frozen"
    ):
        trained(optimizer)


def test_constants_before_compress_are_refused_with_the_way_out():
    zeros = optax.stateless(lambda updates, params: updates | {"kernel": 0 * params["kernel"]})
    with pytest.raises(
        ValueError,
        match=r"gradient of 'kernel' does not vary .* or a constant\. .*set_to_zero after compress",
    ):
        one_update(optax.chain(zeros, compress(top_k(0.1))))


# Arguments that are traced


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "make",
    [
        lambda value: compress(top_k(value)),
        lambda value: compress(parse("random_k(0.1)"), min_compression_rate=value),
        lambda value: compress(error_feedback(top_k(0.1), decay=value)),
        lambda value: compress(jaxcompress.momentum_correction(top_k(0.1), momentum=value)),
        lambda value: compress(jaxcompress.terngrad(clip=value)),
        lambda value: compress(jaxcompress.threshold(value)),
        lambda value: compress(jaxcompress.block_top_k(0.1, block=value)),
        lambda value: compress(qsgd(value)),
    ],
)
def test_an_injected_argument_says_that_it_cannot_be_one(make):
    optimizer = optax.inject_hyperparams(lambda value: make(value))(0.5)
    with pytest.raises(ValueError, match=r"got a traced value, .* optax\.inject_hyperparams"):
        jax.jit(optimizer.init)(TREE)


@pytest.mark.parametrize(
    ("text", "bucket_bytes"),
    [("momentum_correction(top_k(0.01))", None), ("error_feedback(top_k(0.01))", 1)],
)
def test_integer_parameters_need_no_state(text, bucket_bytes):
    params = {"kernel": jnp.zeros((64, 32)), "count": jnp.zeros(3, jnp.int32)}
    link = compress(jaxcompress.parse(text), bucket_bytes=bucket_bytes)
    state = link.init(params)
    assert {x.shape for x in jax.tree.leaves((state.inner, state.dense))} <= {(64, 32), ()}

    def update(x):
        def loss(params):
            return jnp.sum(params["kernel"] * x)

        grads = jax.grad(loss, allow_int=True)(params)
        return link.update(grads, state, params)[0]["kernel"]

    rows = jnp.arange(4.0)[:, None, None] * jnp.ones((64, 32))
    step = jax.jit(jax.vmap(update, axis_name="data"))
    assert step(rows).shape == (4, 64, 32)


@pytest.mark.parametrize("text", ["dense()", "power_sgd(4)", "error_feedback(top_k(0.01))"])
def test_arrays_of_more_bits_than_int32_counts_are_traced(text):
    optimizer = compress(jaxcompress.parse(text))
    # Nothing is allocated. The matrix has 2**33 bits, and so has the vector, which is sent dense.
    params = {
        "matrix": jax.ShapeDtypeStruct((2**14, 2**14), jnp.float32),
        "vector": jax.ShapeDtypeStruct((2**28,), jnp.float32),
    }

    def step(updates):
        return optimizer.update(updates, optimizer.init(updates))[1].bits

    traced = jax.make_jaxpr(step, axis_env=[("data", 2)])(params)
    assert [x.dtype for x in traced.out_avals] == [jnp.float32]


def test_buckets_draw_different_random_numbers():
    tree = {"a": jnp.zeros(1000), "b": jnp.zeros(1000)}
    same = random_updates(0, tree)["a"]
    means, _ = one_update(compress(qsgd(2), bucket_bytes=1), tree, {"a": same, "b": same})
    assert np.any(np.asarray(means["a"]) != np.asarray(means["b"]))
