"""What a sharded model must not be: each is refused with a message that says what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import random_updates
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from sharded_helpers import SPECS, averaging, mesh_of, params_on, placed, trained

import jaxcompress
from jaxcompress import (
    compress,
    dense,
    error_feedback,
    momentum_correction,
    on_shards,
    power_sgd,
    top_k,
)

# As many devices of a worker, arranged otherwise.
ORDERS = ({"model": 2, "tensor": 2}, {"model": 4, "tensor": 1})


def test_without_it_a_sharded_model_is_refused():
    mesh = mesh_of(2, 4)
    optimizer = optax.chain(compress(error_feedback(top_k(0.1))), optax.sgd(0.1))
    with pytest.raises(ValueError, match=r"Write on_shards\(compress\(\.\.\.\), params\)"):
        trained(optimizer, params_on(mesh), mesh)


def test_a_parameter_sharded_over_the_workers_is_refused():
    mesh = mesh_of(2, 4)
    params = params_on(mesh, SPECS | {"kernel": P("data", "model")})
    optimizer = optax.chain(on_shards(compress(top_k(0.1)), params), optax.sgd(0.1))
    with pytest.raises(ValueError, match="'kernel' is sharded over 'data', whose devices are the"):
        trained(optimizer, params, mesh)
    allowed = params_on(mesh)
    state = jaxcompress.init_state(
        optax.chain(on_shards(compress(top_k(0.1)), allowed), optax.sgd(0.1)), allowed, mesh
    )
    with pytest.raises(ValueError, match="sharded over 'data', whose devices are the workers"):
        averaging(optimizer, mesh)(random_updates(1, allowed, 2), state)


@pytest.mark.parametrize("compressor", [dense(), error_feedback(top_k(0.5)), power_sgd(1)])
def test_averaging_over_the_shards_is_refused(compressor):
    mesh, params = mesh_of(2, 4), params_on(mesh_of(2, 4))
    link = on_shards(compress(compressor, ("data", "model")), params)
    with pytest.raises(ValueError, match="an axis of the model in axis_name"):
        trained(optax.chain(link, optax.sgd(0.1)), params, mesh)
    params = params_on(mesh, SPECS | {"scale": P("model")})
    link = on_shards(compress(compressor, ("data", "model")), params)
    with pytest.raises(
        ValueError, match="averages over 'model', along which devices hold different"
    ):
        trained(optax.chain(link, optax.sgd(0.1)), params, mesh)


def test_parameters_that_are_sharded_otherwise_are_refused():
    mesh = mesh_of(2, 4)
    link = on_shards(compress(top_k(0.1)), params_on(mesh, SPECS | {"kernel": P("model")}))
    with pytest.raises(ValueError, match=r"'kernel' is sharded as .* on_shards was told"):
        jaxcompress.init_state(link, params_on(mesh), mesh)


def test_a_state_of_other_shards_is_refused():
    old, new = (jaxcompress.hybrid_mesh({"data": 2, **shape}) for shape in ORDERS)
    spec = P(("model", "tensor"))
    params = [placed({"w": np.zeros(64, np.float32)}, mesh, {"w": spec}) for mesh in (old, new)]
    links = [on_shards(compress(error_feedback(top_k(0.1))), each) for each in params]
    state = jax.device_get(jaxcompress.init_state(links[0], params[0], old))
    with pytest.raises(ValueError, match=r"sharded over 2 devices along 'model', and the mesh has"):
        jaxcompress.place_state(state, params[1], new)
    with pytest.raises(ValueError, match="of parameters that are sharded differently"):
        averaging(links[1], new)(random_updates(1, {"w": jnp.zeros(64)}, 2), state)
    with pytest.raises(ValueError, match=r"2 devices along 'model', and the mesh has the axes"):
        jaxcompress.init_state(links[0], params[0], jaxcompress.data_mesh())


def test_two_momenta_are_found_in_shards_too():
    params = params_on(mesh_of(2, 4))
    link = on_shards(compress(momentum_correction(top_k(0.1))), params)
    with pytest.raises(ValueError, match="the two would multiply"):
        jaxcompress.init_state(optax.chain(link, optax.adam(0.1)), params, mesh_of(2, 4))


def test_a_masked_tree_is_refused_with_advice():
    params = params_on(mesh_of(2, 4))
    marks = {name: name != "bias" for name in SPECS}
    link = optax.masked(on_shards(compress(top_k(0.1)), params), marks)
    with pytest.raises(ValueError, match=r"Put optax\.masked inside on_shards"):
        jaxcompress.init_state(link, params, mesh_of(2, 4))


def test_a_compressor_is_not_a_link():
    with pytest.raises(
        ValueError, match=r"what on_shards takes is .*; write compress\(top_k\(0.1\)\)"
    ):
        on_shards(top_k(0.1), params_on(mesh_of(2, 4)))


def test_a_mesh_with_explicit_axes_is_refused():
    explicit = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with pytest.raises(ValueError, match="axes of the type Auto"):
        on_shards(compress(top_k(0.1)), params_on(explicit))


def test_parameters_that_are_not_placed_are_refused():
    with pytest.raises(ValueError, match=r"takes parameters that are placed on a mesh.*ndarray"):
        on_shards(compress(top_k(0.1)), {"w": np.zeros((4, 4))})


def test_other_parameters_are_refused():
    mesh = mesh_of(2, 4)
    link = on_shards(compress(top_k(0.1)), params_on(mesh))
    others = placed({"kernel": np.zeros((4, 4), np.float32)}, mesh)
    with pytest.raises(ValueError, match="on_shards was made for parameters of the tree"):
        jaxcompress.init_state(link, others, mesh)


def test_a_dimension_that_does_not_divide_is_refused_by_name():
    mesh = mesh_of(2, 4)
    shardings = {"w": NamedSharding(mesh, P("model"))}
    with pytest.raises(ValueError, match="'w' cannot be sharded"):
        on_shards(compress(top_k(0.1)), shardings).init({"w": jnp.zeros(10)})
