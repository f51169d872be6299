"""What local updates refuse, and how they say it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from local_training import WORKERS, Training, W, X, Y, average, loss_of

from jaxcompress import (
    apply_if_all_finite,
    data_mesh,
    dense,
    init_state,
    local_updates,
    make_local_step,
    replicate,
    rows_of_workers,
    shard_batch,
)
from jaxcompress.periods.period_checks import weights_of


@pytest.mark.parametrize("period", [0, 1.5, True, "10"])
def test_a_period_that_is_none_is_refused(period):
    with pytest.raises(ValueError, match="period is the number of inner steps"):
        local_updates(optax.sgd(0.1), optax.sgd(1.0), average(), period)


def test_a_compress_in_the_wrong_place_is_refused():
    inside, params = optax.chain(average(), optax.sgd(0.1)), {"w": jnp.zeros(3)}
    for inner, outer in ((inside, optax.sgd(1.0)), (optax.sgd(0.1), inside)):
        with pytest.raises(
            ValueError, match=r"local_updates sends in average alone.*Take compress"
        ):
            local_updates(inner, outer, average(), 2).init(params)
    # `inside` would move the anchor away from the workers.
    for link in (optax.identity(), inside):
        with pytest.raises(ValueError, match=r"average is a compress\(…\) by itself, such as"):
            local_updates(optax.sgd(0.1), optax.sgd(1.0), link, 2).init(params)
    with pytest.raises(ValueError, match="average is an Optax transformation, such as compress"):
        local_updates(optax.sgd(0.1), optax.sgd(1.0), dense(), 2)
    with pytest.raises(ValueError, match=r"'w' is bfloat16.*Keep parameters in float32"):
        local_updates(optax.sgd(0.1), optax.sgd(1.0), average(), 2).init(
            {"w": jnp.zeros(3, jnp.bfloat16)}
        )


@pytest.mark.parametrize("place", range(3))
def test_a_loss_scale_inside_is_refused(place):
    # Nothing would multiply the loss by the scale by which it divides.
    links = [optax.sgd(0.1), optax.sgd(1.0), average()]
    links[place] = apply_if_all_finite(links[place], loss_scale=1024.0)
    with pytest.raises(ValueError, match="apply_if_all_finite does not go into local_updates"):
        local_updates(*links, 2).init({"w": jnp.zeros(3)})


def test_a_period_that_is_no_number_is_refused():
    optimizer = local_updates(optax.sgd(0.1), optax.sgd(1.0), average(), lambda _: jnp.ones(2))
    with pytest.raises(ValueError, match=r"returns a number of steps; got float32\[2\]"):
        Training(optimizer).run(1)


def test_a_period_that_differs_between_workers_is_refused():
    def period(count):
        return jnp.where(jax.lax.axis_index("data") == 0, 3, 4)

    optimizer = local_updates(optax.sgd(0.1), optax.sgd(1.0), average(), period)
    with pytest.raises(ValueError, match="the period differs between workers"):
        Training(optimizer, mesh=data_mesh(WORKERS)).run(1)


def test_weights_may_be_a_list():
    weights = [1.0, jnp.float32(0), 1, 2.0]
    np.testing.assert_array_equal(weights_of(weights, 4), [1, 0, 1, 2])
    with pytest.raises(ValueError, match=r"one for each of the 3 workers, .* the shape \(4,\)"):
        weights_of(weights, 3)


def test_a_step_that_takes_gradients_at_the_anchor_is_refused():
    whole = local_updates(optax.sgd(0.1), optax.sgd(1.0), average(), 2)
    for optimizer in (whole, apply_if_all_finite(whole)):
        with pytest.raises(ValueError, match="own parameters: train by make_local_step"):
            Training(optimizer, local=False).run(1)


def test_a_chain_without_local_updates_is_refused():
    mesh, params = data_mesh(WORKERS), {"w": W}
    chain = optax.chain(average(), optax.sgd(0.1))
    whole = local_updates(optax.sgd(0.1), optax.sgd(1.0), average(), 2)
    for optimizer in (chain, apply_if_all_finite(whole), optax.chain(whole, optax.scale(0.5))):
        params = replicate({"w": W}, mesh)
        check_refused(optimizer, params, mesh)


def check_refused(optimizer, params, mesh):
    with pytest.raises(ValueError, match=r"is a local_updates\(…\), a streaming\(…\) or a gossip"):
        make_local_step(loss_of, optimizer, mesh)(
            params,
            init_state(optimizer, params, mesh),
            rows_of_workers({}, mesh),
            shard_batch((X, Y), mesh),
        )
