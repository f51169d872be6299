"""A small LSTM that reads a text character by character and predicts the next character.

It is small enough for a CPU: 279,873 parameters for 65 characters. The four gates of a layer share
one kernel for the inputs and one for the previous outputs, both (width, 4 width), as in the network
of the PowerSGD paper. One wide matrix of low rank costs less than four square ones, and the product
with all inputs precedes the loop. No state passes from batch to batch.

References: Hochreiter and Schmidhuber, `Long Short-Term Memory
<https://doi.org/10.1162/neco.1997.9.8.1735>`_, 1997; Vogels et al., `PowerSGD
<https://arxiv.org/abs/1905.13727>`_, 2019
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int


class LSTM(nn.Module):
    """An embedding, LSTM layers, and one dense layer.

    Args:
      num_classes: number of characters and of logits.
      dtype: dtype of the computation; parameters and cell states are float32.
      width: features of a character and of a cell state.
      layers: number of LSTM layers.
    """

    num_classes: int
    dtype: DTypeLike = jnp.float32
    width: int = 128
    layers: int = 2

    @nn.compact
    def __call__(
        self, tokens: Int[Array, "n length"], train: bool
    ) -> Float[Array, "n length classes"]:
        """The logits of the next character at every position."""
        del train  # training and evaluation are the same
        x = nn.Embed(self.num_classes, self.width, dtype=self.dtype, name="token_embedding")(tokens)
        for _ in range(self.layers):
            x = Layer(self.dtype)(x)
        return nn.Dense(self.num_classes, dtype=self.dtype, name="unembedding")(x)


class Layer(nn.Module):
    """One LSTM layer, as wide as its inputs.

    With the gates ``i, f, g, o = x_t W + b + h_(t-1) R``:

        c_t = sigmoid(f + 1) c_(t-1) + sigmoid(i) tanh(g)      h_t = sigmoid(o) tanh(c_t)

    The forget gate has a bias of 1, so that a new layer does not forget at once (Gers et al.,
    2000).
    """

    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Float[Array, "n length width"]) -> Float[Array, "n length width"]:
        """The outputs of the layer after each character."""
        width = x.shape[-1]
        input_gates = nn.Dense(4 * width, dtype=self.dtype, name="input")(x)
        recurrent = self.param(
            "recurrent_kernel", nn.initializers.orthogonal(), (width, 4 * width)
        ).astype(self.dtype)

        def step(carry, gates):
            cell, output = carry
            i, f, g, o = jnp.split(gates + output @ recurrent, 4, axis=-1)
            cell = nn.sigmoid(f + 1) * cell + nn.sigmoid(i) * jnp.tanh(g)
            output = (nn.sigmoid(o) * jnp.tanh(cell)).astype(self.dtype)
            return (cell, output), output

        # Derived from the inputs, so that inside `shard_map` they vary between workers as the
        # following states do.
        start = jnp.zeros_like(x[:, 0], jnp.float32), jnp.zeros_like(x[:, 0], self.dtype)
        _, outputs = jax.lax.scan(step, start, input_gates.swapaxes(0, 1))
        return outputs.swapaxes(0, 1)
