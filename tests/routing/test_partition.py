"""A compressor for each kind of array."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
    assert_close,
    assert_same_bits,
    first_state,
    mean_over_workers,
    random_updates,
    run,
)

import jaxcompress
from jaxcompress import (
    by_path,
    by_shape,
    cast,
    dense,
    error_feedback,
    parse,
    power_sgd,
    qsgd,
    top_k,
)
from jaxcompress.routing.partition import partition

TREE = {"kernel": jnp.zeros((8, 6)), "bias": jnp.zeros((10,)), "embedding": jnp.zeros((5, 4))}


def outcome_of(compressor, tree=TREE):
    return run(compressor, random_updates(0, tree), first_state(compressor, tree))


def only(tree, *names):
    return {name: tree[name] for name in names}


def test_by_shape_each_array_is_averaged_by_its_own_compressor():
    both = outcome_of(partition({"matrix": top_k(0.2), "rest": dense()}, by_shape()))
    sparse = outcome_of(top_k(0.2))
    assert_same_bits(
        only(both.mean, "kernel", "embedding"), only(sparse.mean, "kernel", "embedding")
    )
    assert_same_bits(
        only(both.sent, "kernel", "embedding"), only(sparse.sent, "kernel", "embedding")
    )
    dense_mean = mean_over_workers(random_updates(0, TREE))["bias"]
    assert_close(
        both.mean["bias"], np.broadcast_to(dense_mean, both.mean["bias"].shape).astype(np.float32)
    )


def test_by_path_one_array_is_left_dense():
    labels = by_path({"*embedding": "dense"})
    outcome = outcome_of(partition({"dense": dense(), "rest": top_k(0.2)}, labels))
    kept = {name: np.count_nonzero(x[0]) for name, x in outcome.sent.items()}
    # A fifth of 48, of 10, and all of 20.
    assert kept == {"kernel": 10, "bias": 2, "embedding": 20}


def test_any_function_of_a_tree_labels():
    def labels(tree):
        return jax.tree.map(lambda x: "long" if x.size > 15 else "short", tree)

    outcome = outcome_of(partition({"long": top_k(0.1), "short": dense()}, labels))
    assert {name: np.count_nonzero(x[0]) for name, x in outcome.sent.items()} == {
        "kernel": 5,
        "bias": 10,
        "embedding": 2,
    }


LAYERS = {
    "Embed_0": {"embedding": (32, 16)},
    "LayerNorm_0": {"scale": (16,), "bias": (16,)},
    "Dense_0": {"kernel": (16, 64), "bias": (64,)},
    "Dense_1": {"kernel": (64, 4), "bias": (4,)},
}
BY_LAYER = (
    "error_feedback(partition({'vector': dense(), 'embedding': dense(), 'last': top_k(0.1), 'rest':"
    " top_k(0.01)}, first_label(norms_and_biases(), embeddings(), first_and_last('Embed_0',"
    " 'Dense_1'))))"
)


def layers(seed=0):
    """The parameters of a small network over 32 tokens."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: jnp.asarray(rng.standard_normal(shape) / np.sqrt(shape[0]), jnp.float32),
        LAYERS,
        is_leaf=lambda node: isinstance(node, tuple),
    )


def test_each_layer_has_a_density_of_its_own_and_the_law_holds():
    compressor, like = parse(BY_LAYER), layers()
    updates = random_updates(0, like)
    outcome = run(compressor, updates, first_state(compressor, like))
    sent = jax.tree.map(jnp.subtract, updates, outcome.state.error.value.arrays)
    assert jax.tree.map(lambda x: np.count_nonzero(x[0]), sent) == {
        "Embed_0": {"embedding": 512},
        "LayerNorm_0": {"scale": 16, "bias": 16},
        "Dense_0": {"kernel": 10, "bias": 64},
        "Dense_1": {"kernel": 26, "bias": 4},
    }
    mean = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), mean_over_workers(sent))
    assert_close(jax.tree.map(lambda x: x[0], outcome.mean), mean)


def test_a_network_with_a_density_for_each_layer_trains():
    mesh = jaxcompress.data_mesh(4)
    tokens = np.arange(64) % 32

    def loss_fn(params, extra, batch):
        x = params["Embed_0"]["embedding"][batch["tokens"]]
        x = x * (1 + params["LayerNorm_0"]["scale"]) + params["LayerNorm_0"]["bias"]
        x = jax.nn.relu(x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"])
        logits = x @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["classes"])
        return jnp.mean(loss), (extra, {})

    optimizer = optax.chain(jaxcompress.compress(parse(BY_LAYER)), optax.sgd(0.3))
    params = jaxcompress.replicate(layers(), mesh)
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(loss_fn, optimizer, mesh)
    batch = jaxcompress.shard_batch({"tokens": tokens, "classes": tokens * 7 % 32 // 8}, mesh)
    losses, extra = [], {}
    for _ in range(200):
        params, state, extra, metrics = step(params, state, extra, batch)
        losses.append(float(metrics["loss"]))
    # Four classes at random are log 4 = 1.39.
    assert losses[0] > 1 and losses[-1] < 0.1


def test_state_is_one_of_each_label_and_knows_its_own_arrays_only():
    compressor = partition({"matrix": power_sgd(2), "rest": error_feedback(top_k(0.5))}, by_shape())
    state = outcome_of(compressor).state
    assert set(state) == {"matrix", "rest"}
    assert [x.shape for x in jax.tree.leaves(state["matrix"].q)] == [(1, 4, 2), (1, 6, 2)]
    (memory,) = jax.tree.leaves(state["rest"].error)
    assert memory.shape[1:] == (10,)


def test_bits_add_up():
    compressor = partition({"matrix": cast("bfloat16"), "rest": qsgd(8)}, by_shape())
    # 16 bits of each of 68 entries; 10 entries of 8 bits in 3 words of 32, and one scale.
    assert compressor.message_bits(TREE) == {"kernel": 768, "embedding": 320, "bias": 128}
    np.testing.assert_array_equal(outcome_of(compressor).bits, 768 + 320 + 128)


def test_two_random_parts_draw_from_different_keys():
    tree = {"a": jnp.zeros((1000,)), "b": jnp.zeros((1000,))}
    compressor = partition({"one": qsgd(2), "two": qsgd(2)}, by_path({"a": "one"}, default="two"))
    same = random_updates(0, {"a": tree["a"]})["a"]
    sent = run(compressor, {"a": same, "b": same}, first_state(compressor, tree)).sent
    assert np.any(np.asarray(sent["a"]) != np.asarray(sent["b"]))


def test_a_label_without_arrays_sends_nothing():
    compressor = partition(
        {"matrix": power_sgd(2), "rest": dense(), "unused": error_feedback(top_k(0.1))}, by_shape()
    )
    np.testing.assert_array_equal(outcome_of(compressor, {"bias": jnp.zeros((10,))}).bits, 320)


def test_an_unknown_label_names_the_array_and_the_known_labels():
    compressor = partition({"matrix": dense(), "vector": dense()}, by_shape())
    words = r"the array 'layer/bias' is labelled 'rest'; partition knows \['matrix', 'vector'\]\."
    with pytest.raises(ValueError, match=words):
        compressor.init(jax.random.key(0), {"layer": {"bias": jnp.zeros((3,))}})
    with pytest.raises(ValueError, match=words):
        compressor.message_bits({"layer": {"bias": jnp.zeros((3,))}})


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("compressors", [dense(), {"matrix": "dense()"}, [dense()], None])
def test_what_is_no_dict_of_compressors_is_refused(compressors):
    with pytest.raises(ValueError, match=r"partition takes a dict of compressors, as in .*; got"):
        partition(compressors, by_shape())


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("labels", ["matrix", {"x": "matrix"}, None])
def test_labels_that_are_no_function_are_refused(labels):
    with pytest.raises(
        ValueError, match=r"partition takes a function from a tree to labels, as by_shape\(\); got"
    ):
        partition({"matrix": dense()}, labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (lambda: "matrix", "the labels of partition take a tree to a tree of labels"),
        (lambda tree: "matrix", "the labels of partition take a tree to a tree of labels"),
        (lambda tree: jax.tree.map(lambda x: ["matrix"], tree), r"'a' is labelled \['matrix'\]"),
        (
            lambda tree: jax.tree.map(lambda x: "matrix" if x.ndim > 1 else None, tree),
            r"the array 'b' is labelled None; partition knows \['matrix'\]",
        ),
    ],
)
def test_what_gives_no_labels_is_refused(labels, message):
    tree = {"a": jnp.zeros((2, 2)), "b": jnp.zeros(2)}
    with pytest.raises(ValueError, match=message):
        partition({"matrix": dense()}, labels).init(jax.random.key(0), tree)
