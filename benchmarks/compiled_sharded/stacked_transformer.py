"""A decoder-only transformer as plain functions, sharded over one axis of a mesh.

The parameters of all layers are stacked, and `jax.lax.scan` runs over them: a program has one
layer, so it compiles fast. Each layer is computed again in the backward pass. Parameters are
float32 and the computation is bfloat16.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P


class Shape(NamedTuple):
    """The size of a transformer; by default 1.3 billion parameters."""

    layers: int = 24
    width: int = 2048
    heads: int = 16
    vocabulary: int = 50_304
    context: int = 1024


# The dimension of each array that is sharded. Scales are replicated.
SPECS = {
    "layers": {
        "qkv": P(None, None, "fsdp"),
        "out": P(None, "fsdp", None),
        "up": P(None, None, "fsdp"),
        "down": P(None, "fsdp", None),
        "scales": P(),
    },
    "tokens": P("fsdp", None),
    "positions": P("fsdp", None),
    "last_scale": P(),
}


def parameters(shape: Shape) -> dict[str, Any]:
    """The shapes of all parameters."""

    def array(*dimensions):
        return jax.ShapeDtypeStruct(dimensions, jnp.float32)

    layers, width = shape.layers, shape.width
    return {
        "layers": {
            "qkv": array(layers, width, 3 * width),
            "out": array(layers, width, width),
            "up": array(layers, width, 4 * width),
            "down": array(layers, 4 * width, width),
            "scales": array(layers, 2, width),
        },
        "tokens": array(shape.vocabulary, width),
        "positions": array(shape.context, width),
        "last_scale": array(width),
    }


def make_loss(shape: Shape) -> Any:
    """The mean cross-entropy of the next token, for `make_train_step`."""

    def loss_fn(params, batch):
        tokens = _gathered(params["tokens"])
        x = tokens[batch[:, :-1]] + _gathered(params["positions"])
        x, _ = jax.lax.scan(
            jax.checkpoint(lambda x, layer: (_layer(shape, x, layer), None)),
            _by_row(x),
            params["layers"],
        )
        logits = (_normalised(x, params["last_scale"]) @ tokens.T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    return loss_fn


def _layer(shape: Shape, x: jax.Array, layer: dict[str, jax.Array]) -> jax.Array:
    weights = {name: _gathered(layer[name]) for name in ("qkv", "out", "up", "down")}
    qkv = _normalised(x, layer["scales"][0]) @ weights["qkv"]
    heads = jnp.split(qkv.reshape(*x.shape[:2], shape.heads, -1), 3, axis=-1)
    mixed = jax.nn.dot_product_attention(*heads, is_causal=True).reshape(x.shape)
    x = _by_row(x + mixed @ weights["out"])
    hidden = jax.nn.gelu(_normalised(x, layer["scales"][1]) @ weights["up"])
    return _by_row(x + hidden @ weights["down"])


def _normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    """RMS norm, in float32."""
    x = x.astype(jnp.float32)
    size = jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)
    return (x / size * scale).astype(jnp.bfloat16)


def _gathered(weight: jax.Array) -> jax.Array:
    """A whole weight on every device, in bfloat16."""
    return jax.lax.with_sharding_constraint(weight.astype(jnp.bfloat16), P())


def _by_row(x: jax.Array) -> jax.Array:
    """Each device of a worker has its own sequences."""
    return jax.lax.with_sharding_constraint(x, P("fsdp"))
