"""A small decoder-only transformer that predicts the next character.

It is small enough for a CPU: 421,697 parameters for 65 characters and 64 positions. It is pre-norm
(Xiong et al.) with learned positions. The attention kernels have an axis of heads: (width, heads,
head width). The embeddings and the last layer have "embed" in their names, so that
``by_path({"*mbed*": …})`` finds them: low rank does not suit them (Ramesh et al., appendix E).

References: Vaswani et al., `Attention Is All You Need <https://arxiv.org/abs/1706.03762>`_, 2017;
Xiong et al., `On Layer Normalization in the Transformer Architecture
<https://arxiv.org/abs/2002.04745>`_, 2020; Ramesh et al., `Zero-Shot Text-to-Image Generation
<https://arxiv.org/abs/2102.12092>`_, 2021
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int


class Transformer(nn.Module):
    """Embeddings of characters and positions, blocks, a LayerNorm, and one dense layer.

    Args:
      num_classes: number of characters and of logits.
      context: largest number of positions.
      dtype: dtype of the computation; parameters are float32.
      width: features of a character.
      layers: number of blocks.
      heads: attention heads of a block; divides `width`.
      scan_layers: whether the blocks are one block in a loop, whose parameters are stacked along a
        first axis of layers.
    """

    num_classes: int
    context: int
    dtype: DTypeLike = jnp.float32
    width: int = 128
    layers: int = 2
    heads: int = 4
    scan_layers: bool = False

    @nn.compact
    def __call__(
        self, tokens: Int[Array, "n length"], train: bool
    ) -> Float[Array, "n length classes"]:
        """The logits of the next character at every position; `length` is at most `context`."""
        del train  # training and evaluation are the same
        positions = self.param(
            "position_embedding", nn.initializers.normal(0.02), (self.context, self.width)
        )
        x = nn.Embed(self.num_classes, self.width, dtype=self.dtype, name="token_embedding")(tokens)
        x = x + positions[: tokens.shape[1]].astype(self.dtype)
        if self.scan_layers:
            blocks = nn.scan(
                lambda block, x, _: (block(x), None),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.layers,
            )
            x, _ = blocks(Block(self.heads, self.dtype, name="blocks"), x, None)
        else:
            for _ in range(self.layers):
                x = Block(self.heads, self.dtype)(x)
        return nn.Dense(self.num_classes, dtype=self.dtype, name="unembedding")(
            nn.LayerNorm(dtype=self.dtype)(x)
        )


class Block(nn.Module):
    """Causal attention and a two-layer MLP, each beside a shortcut."""

    heads: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """The features of the next block."""
        mask = nn.make_causal_mask(x[..., 0])
        attention = nn.MultiHeadDotProductAttention(self.heads, dtype=self.dtype)
        x = x + attention(nn.LayerNorm(dtype=self.dtype)(x), mask=mask)
        y = nn.gelu(nn.Dense(4 * x.shape[-1], dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x)))
        return x + nn.Dense(x.shape[-1], dtype=self.dtype)(y)
