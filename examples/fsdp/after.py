"""A transformer, sharded over the devices of a node, learns the text of Python's manual."""

from pydoc_data.topics import topics

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress as jc


def init(key, characters, context, width=128, layers=2):
    """Parameters, normal with the variance of 1 / inputs."""
    keys = iter(jax.random.split(key, 3 + 4 * layers))

    def normal(*shape):
        return jax.random.normal(next(keys), shape) * shape[0] ** -0.5

    blocks = [
        {
            "qkv": normal(width, 3 * width),
            "out": normal(width, width),
            "up": normal(width, 4 * width),
            "down": normal(4 * width, width),
            "scales": jnp.ones((2, width)),
        }
        for _ in range(layers)
    ]
    embeddings = {"tokens": normal(characters, width), "positions": normal(context, width)}
    return {"blocks": blocks, "last": normal(width, characters), **embeddings}


def logits_of(params, tokens, heads=4):
    x = params["tokens"][tokens] + params["positions"][: tokens.shape[1]]
    for block in params["blocks"]:
        qkv = (jax.nn.standardize(x) * block["scales"][0]) @ block["qkv"]
        parts = jnp.split(qkv.reshape(*tokens.shape, heads, -1), 3, axis=-1)
        mixed = jax.nn.dot_product_attention(*parts, is_causal=True)
        x = x + mixed.reshape(x.shape) @ block["out"]
        up = (jax.nn.standardize(x) * block["scales"][1]) @ block["up"]
        x = x + jax.nn.gelu(up) @ block["down"]
    return jax.nn.standardize(x) @ params["last"]


def loss_fn(params, batch):
    logits = logits_of(params, batch[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()


def fully_sharded(x, mesh):
    """The largest dimension over "fsdp", if the array is a matrix."""
    spec = [None] * x.ndim
    if min(x.shape) > 2:
        spec[int(np.argmax(x.shape))] = "fsdp"
    return NamedSharding(mesh, P(*spec))


def main(steps=100, context=64):
    text = np.frombuffer("".join(topics.values()).encode("ascii", "replace"), np.uint8)
    characters, text = np.unique(text, return_inverse=True)
    rng, size = np.random.default_rng(0), -(-characters.size // 8) * 8
    mesh = jc.hybrid_mesh({"data": 2, "fsdp": jax.device_count() // 2})
    params = init(jax.random.key(0), size, context)
    params = jax.device_put(params, jax.tree.map(lambda x: fully_sharded(x, mesh), params))
    link = jc.on_shards(jc.compress(jc.error_feedback(jc.top_k(0.05))), params)
    optimizer = jc.apply_if_all_finite(optax.chain(link, optax.adamw(3e-3)))
    state = jc.init_state(optimizer, params, mesh)
    train_step = jc.make_train_step(loss_fn, optimizer, mesh)
    for step in range(steps):
        starts = rng.integers(text.size - context, size=32)
        batch = text[starts[:, None] + np.arange(context + 1)]
        batch = jc.shard_batch(batch, mesh, ("data", "fsdp"))
        params, state, _, metrics = train_step(params, state, {}, batch)
        if step % 20 == 0:
            print(f"step {step}, loss {metrics['loss']:.3f}", flush=True)
    print(f"loss {metrics['loss']:.3f}, {params['blocks'][0]['up'].sharding.spec}")
    return float(metrics["loss"])


if __name__ == "__main__":
    main()
