"""Together with Optax: what composes trains as the dense run does, and what would go wrong fails
while tracing.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import WORKERS, assert_close, assert_same_bits, slow_unless
from jax.sharding import PartitionSpec as P
from optimizer_helpers import assert_replicas_are_equal

import jaxcompress
from jaxcompress import compress, dense, error_feedback, parse, top_k
from jaxcompress.distributed.placement import expand_worker_axis, squeeze_worker_axis

ROWS, INPUTS, OUTPUTS = 64, 16, 12
RNG = np.random.default_rng(0)
# A regression that can be solved to zero: every optimizer has to find the same parameters.
X = RNG.standard_normal((ROWS, INPUTS), np.float32)
TRUE = {
    "kernel": RNG.standard_normal((INPUTS, OUTPUTS), np.float32),
    "bias": np.ones(OUTPUTS, np.float32),
}
Y = X @ TRUE["kernel"] + TRUE["bias"]
START = jax.tree.map(lambda x: 0.1 * RNG.standard_normal(x.shape, np.float32), TRUE)

STEPS = 120


def falling(rate: float) -> optax.Schedule:
    """A learning rate that ends at zero: optimizers that normalise their steps come to rest no
    other way.
    """
    return optax.cosine_decay_schedule(rate, STEPS)


OPTIMIZERS = {
    "sgd with Nesterov momentum": lambda: optax.sgd(falling(0.3), momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(falling(0.2)),
    "adamw": lambda: optax.adamw(falling(0.2), weight_decay=1e-4),
    "rmsprop": lambda: optax.rmsprop(falling(0.1)),
    "lamb": lambda: optax.lamb(falling(0.1)),
    "muon": lambda: optax.contrib.muon(falling(0.2)),
}


def loss_of(params, batch):
    x, y = batch
    return jnp.mean(jnp.square(x @ params["kernel"] + params["bias"] - y))


def with_extra(params, extra, batch):
    return loss_of(params, batch), (extra, {})


def link(
    expression: str = "error_feedback(top_k(0.25))", **options
) -> optax.GradientTransformationExtraArgs:
    return compress(parse(expression), **options)


def placed(optimizer, mesh=None):
    """Parameters, state and batch on their devices."""
    mesh = mesh or jaxcompress.data_mesh(WORKERS)
    params = jaxcompress.replicate(START, mesh)
    return (
        params,
        jaxcompress.init_state(optimizer, params, mesh),
        jaxcompress.shard_batch((X, Y), mesh),
    )


def train(optimizer, steps: int):
    """Parameters, state, and the loss before each step."""
    params, state, batch = placed(optimizer)
    step = jaxcompress.make_train_step(with_extra, optimizer, jaxcompress.data_mesh(WORKERS))
    losses, extra = [], {}
    for _ in range(steps):
        params, state, extra, metrics = step(params, state, extra, batch)
        losses.append(metrics["loss"])
    return params, state, np.asarray(jnp.stack(losses))


def trace(optimizer):
    """Traces a step with this optimizer, and runs nothing."""
    params, state, batch = placed(optimizer)
    return jaxcompress.make_train_step(with_extra, optimizer, jaxcompress.data_mesh(WORKERS)).trace(
        params, state, {}, batch
    )


def in_own_shard_map(optimizer, value_and_grad, steps: int = 1):
    """What a user writes without `make_train_step`: steps on the same batch, by `lax.scan`, in one
    program.
    """

    def run(params, state, batch):
        def step(carry, _):
            params, state = carry
            _, grads = value_and_grad(loss_of)(params, batch)
            updates, state = optimizer.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, state), _ = jax.lax.scan(step, (params, squeeze_worker_axis(state)), length=steps)
        return params, expand_worker_axis(state)

    mesh = jaxcompress.data_mesh(WORKERS)
    params, state, batch = placed(optimizer, mesh)
    specs = jaxcompress.state_specs(state)
    step = jax.shard_map(run, mesh=mesh, in_specs=(P(), specs, P("data")), out_specs=(P(), specs))
    return jax.jit(step).trace(params, state, batch), (params, state, batch)


# What composes


@functools.cache
def dense_losses(name: str) -> np.ndarray:
    return train(optax.chain(compress(dense()), OPTIMIZERS[name]()), STEPS)[2]


TOP_K, POWER_SGD = "error_feedback(top_k(0.25))", "error_feedback(power_sgd(2))"


# tests/test_optimizers_matrix.py has Adam after each kind of compressor.
@pytest.mark.parametrize(
    ("name", "expression"),
    slow_unless(
        [
            ("sgd with Nesterov momentum", TOP_K),
            ("adamw", POWER_SGD),
            ("rmsprop", TOP_K),
            ("lamb", POWER_SGD),
            ("muon", TOP_K),
        ],
        OPTIMIZERS,
        (TOP_K, POWER_SGD),
    ),
)
def test_compressed_training_ends_where_the_dense_one_does(name, expression):
    of_dense = dense_losses(name)
    params, _, compressed = train(optax.chain(link(expression), OPTIMIZERS[name]()), STEPS)
    # Both solve the problem to one part in a hundred; what is left depends on the optimizer more
    # than on the bits.
    assert compressed[0] == of_dense[0]
    assert max(of_dense[-1], compressed[-1]) < of_dense[0] / 100
    assert_replicas_are_equal(params)


def test_a_hyperparameter_can_be_changed_without_compiling_again(caplog):
    optimizer = optax.inject_hyperparams(
        lambda learning_rate: optax.chain(link(), optax.sgd(learning_rate))
    )(0.1)
    mesh = jaxcompress.data_mesh(WORKERS)
    params, state, batch = placed(optimizer, mesh)
    step, extra = jaxcompress.make_train_step(with_extra, optimizer, mesh), {}
    with jax.log_compiles():
        for _ in range(3):
            params, state, extra, _ = step(params, state, extra, batch)
        moved = jax.tree.map(np.asarray, params)
        rate = state.hyperparams["learning_rate"]
        state.hyperparams["learning_rate"] = jaxcompress.replicate(jnp.zeros_like(rate), mesh)
        params, state, extra, _ = step(params, state, extra, batch)
    assert_close(moved, train(optax.chain(link(), optax.sgd(0.1)), 3)[0])
    assert_same_bits(params, moved)
    assert (
        len([record for record in caplog.messages if record.startswith("Compiling jit(step)")]) == 1
    )


def test_a_compressor_s_link_can_be_injected_with_its_static_arguments():
    def make(density, learning_rate):
        return optax.chain(compress(error_feedback(top_k(density))), optax.sgd(learning_rate))

    optimizer = optax.inject_hyperparams(make, static_args=("density",))(
        density=0.25, learning_rate=0.1
    )
    params, *_ = train(optimizer, 3)
    assert_close(params, train(optax.chain(link(), optax.sgd(0.1)), 3)[0])


def test_two_links_inside_partition_each_take_their_own_arrays():
    optimizer = optax.partition(
        {
            "matrix": optax.chain(link("error_feedback(power_sgd(2))"), optax.sgd(0.1)),
            "vector": optax.chain(compress(dense()), optax.adam(0.1)),
        },
        lambda params: jax.tree.map(lambda x: "matrix" if x.ndim == 2 else "vector", params),
    )
    params, *_ = train(optimizer, 1)
    # The first step: neither gradient depends on what the other array has become.
    kernel = train(optax.chain(link("error_feedback(power_sgd(2))"), optax.sgd(0.1)), 1)[0][
        "kernel"
    ]
    bias = train(optax.chain(compress(dense()), optax.adam(0.1)), 1)[0]["bias"]
    assert_close(params, {"kernel": kernel, "bias": bias})
    assert_replicas_are_equal(params)


def test_steps_inside_scan_equal_steps_of_a_loop():
    optimizer = optax.chain(link("error_feedback(top_k(0.25, inner=qsgd(8)))"), optax.adam(0.1))
    traced, arguments = in_own_shard_map(optimizer, jaxcompress.local_value_and_grad, steps=4)
    params, state = traced.lower().compile()(*arguments)
    looped, looped_state, _ = train(optimizer, 4)
    assert_close(params, looped)
    assert_close(state[0].inner, looped_state[0].inner)


@pytest.mark.parametrize("place", ["before", "after"])
def test_clipping_before_and_after_keeps_replicas_equal_and_trains(place):
    clip = optax.clip_by_global_norm(1.0)
    chain = (clip, link(), optax.sgd(0.3)) if place == "before" else (link(), clip, optax.sgd(0.3))
    params, _, losses = train(optax.chain(*chain), 100)
    assert_replicas_are_equal(params)
    assert losses[-1] < losses[0] / 100


def test_apply_if_finite_after_it_is_right():
    optimizer = optax.chain(link(), optax.apply_if_finite(optax.sgd(0.1), 3))
    assert_close(train(optimizer, 2)[0], train(optax.chain(link(), optax.sgd(0.1)), 2)[0])


# What does not

AROUND = "comes after it, not around or before it"
WRONG = {
    "MultiSteps around it": (
        lambda: optax.MultiSteps(optax.chain(link(), optax.sgd(0.1)), 2).gradient_transformation(),
        r"optax\.MultiSteps \(use micro_batches of make_train_step\)",
    ),
    "masked around it": (
        lambda: optax.chain(optax.masked(link(), {"kernel": True, "bias": False}), optax.sgd(0.1)),
        "updates at 'bias' would differ between workers .* partition instead of optax.masked",
    ),
    "apply_if_finite around it": (
        lambda: optax.apply_if_finite(optax.chain(link(), optax.sgd(0.1)), 3),
        "apply_if_all_finite around the whole chain instead of optax.apply_if_finite",
    ),
    "apply_if_finite before it": (
        lambda: optax.chain(optax.apply_if_finite(optax.identity(), 3), link(), optax.sgd(0.1)),
        (
            "optimizer state at '0/notfinite_count' would differ .* apply_if_all_finite around the"
            " whole chain instead of"
        ),
    ),
    "conditionally_mask around it": (
        lambda: optax.conditionally_mask(
            optax.chain(link(), optax.sgd(0.1)), lambda step: step < 2
        ),
        AROUND,
    ),
    "momentum before it": (
        lambda: optax.chain(optax.trace(0.9), link(), optax.sgd(0.1)),
        f"optimizer state at '0/trace/bias' would differ between workers .* {AROUND}: momentum",
    ),
    "adam before it": (
        lambda: optax.chain(optax.scale_by_adam(), link()),
        f"optimizer state at '0/mu/bias' would differ between workers .* {AROUND}: momentum",
    ),
    "averaged before it": (
        lambda: optax.chain(
            optax.stateless(lambda g, _: jax.lax.pmean(g, "data")), link(), optax.sgd(0.1)
        ),
        "gradient of 'bias' does not vary over the axis 'data'.* a pmean or a second compress",
    ),
    "two of them": (
        lambda: optax.chain(link(), link(), optax.sgd(0.1)),
        "gradient of 'bias' does not vary over the axis 'data'.* a pmean or a second compress",
    ),
    "none of them": (lambda: optax.sgd(0.1), "updates at 'bias' would differ between workers"),
}


@pytest.mark.parametrize("combination", WRONG)
def test_wrong_combination_fails_while_tracing_and_tells_the_way_out(combination):
    make, words = WRONG[combination]
    # `match` reads the notes of an exception too, which stand below its message in a traceback.
    with pytest.raises((ValueError, TypeError), match=words):
        trace(make())


@pytest.mark.parametrize("combination", WRONG)
def test_wrong_combination_in_a_user_s_own_shard_map_fails_while_tracing(combination):
    # Most of these are JAX's own words; they come before anything runs, which is what counts.
    with pytest.raises((ValueError, TypeError)):
        in_own_shard_map(WRONG[combination][0](), jaxcompress.local_value_and_grad)


def test_gradients_already_summed_are_refused_while_tracing():
    words = (
        r"'bias' does not vary over the axis 'data'.*sums the gradients of replicated parameters"
        r" silently.*pcast\(params"
    )
    with pytest.raises(ValueError, match=words):
        in_own_shard_map(optax.chain(link(), optax.sgd(0.1)), jax.value_and_grad)
