"""Small sharded parameters on a mesh, and steps that average and train them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress

SPECS = {
    "kernel": P(None, "model"),
    "embedding": P("model", None),
    "bias": P("model"),
    "scale": P(),
}
SHAPES = {"kernel": (40, 64), "embedding": (64, 24), "bias": (80,), "scale": (48,)}


def mesh_of(*shape: int) -> Mesh:
    names = ("data", "model", "tensor")[: len(shape)]
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(shape))


def placed(tree, mesh, specs=SPECS):
    return {name: jax.device_put(x, NamedSharding(mesh, specs[name])) for name, x in tree.items()}


def params_on(mesh, specs=SPECS):
    rng = np.random.default_rng(0)
    like = {name: rng.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
    return placed(like, mesh, specs)


def averaging(optimizer, mesh):
    """A jitted step: updates of all workers in, (workers, …), and their average out."""

    def local(updates, state):
        own = jax.tree.map(lambda x: x[0], updates)
        mean, state = optimizer.update(own, jaxcompress.squeeze_worker_axis(state))
        return mean, jaxcompress.expand_worker_axis(state)

    def step(updates, state):
        specs = jaxcompress.state_specs(state)
        return jax.shard_map(
            local,
            mesh=mesh,
            in_specs=(P("data"), specs),
            out_specs=(P(), specs),
            axis_names={"data"},
        )(updates, state)

    return jax.jit(step)


def loss_fn(params, extra, batch):
    hidden = jax.nn.gelu(batch["x"] @ params["kernel"] + params["bias"][:64])
    found = hidden @ params["embedding"]
    return jnp.mean((found - batch["y"]) ** 2) + jnp.mean(params["scale"] ** 2), (extra, {})


def trained(optimizer, params, mesh, steps=3):
    state = jaxcompress.init_state(optimizer, params, mesh)
    step = jaxcompress.make_train_step(loss_fn, optimizer, mesh)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((16, 40), np.float32)
    batch = jaxcompress.shard_batch({"x": x, "y": x[:, :24]}, mesh)
    compiled = step.lower(params, state, {}, batch).compile()
    losses = []
    for _ in range(steps):
        params, state, _, metrics = step(params, state, {}, batch)
        losses.append(float(metrics["loss"]))
    return compiled.as_text(), losses, params, state
