"""A small LSTM: it reads a text character by character, and foretells the next from what it remembers.

It is meant for a CPU: 279,873 parameters for 65 characters. The four gates of a layer share one kernel for its inputs
and one for its outputs of the step before, both (width, 4 width), as in the network that PowerSGD was measured on: for
low rank one wide matrix costs less than four square ones, and the product with all inputs is done before the loop. No
memory is kept from one batch to the next.

References: Hochreiter and Schmidhuber, `Long Short-Term Memory <https://doi.org/10.1162/neco.1997.9.8.1735>`_, 1997;
Vogels et al., `PowerSGD <https://arxiv.org/abs/1905.13727>`_, 2019
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int


class LSTM(nn.Module):
    """An embedding, layers of memory, and one dense layer.

    Args:
      num_classes: how many characters there are, number of logits.
      dtype: of the computation; parameters and what a layer remembers are float32.
      width: features of a character, and of what a layer remembers.
      layers: number of layers.
    """

    num_classes: int
    dtype: DTypeLike = jnp.float32
    width: int = 128
    layers: int = 2

    @nn.compact
    def __call__(self, tokens: Int[Array, "n length"], train: bool) -> Float[Array, "n length classes"]:
        """The logits of each next character."""
        del train  # nothing here behaves differently in training
        x = nn.Embed(self.num_classes, self.width, dtype=self.dtype, name="token_embedding")(tokens)
        for _ in range(self.layers):
            x = Layer(self.dtype)(x)
        return nn.Dense(self.num_classes, dtype=self.dtype, name="unembedding")(x)


class Layer(nn.Module):
    """One layer of memory, as wide as its inputs.

    With the gates ``i, f, g, o = x_t W + b + h_(t-1) R``:

        c_t = sigmoid(f + 1) c_(t-1) + sigmoid(i) tanh(g)      h_t = sigmoid(o) tanh(c_t)

    The 1 keeps a fresh layer from forgetting at once (Gers et al., 2000).
    """

    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Float[Array, "n length width"]) -> Float[Array, "n length width"]:
        """What the layer gives out after each character."""
        width = x.shape[-1]
        of_inputs = nn.Dense(4 * width, dtype=self.dtype, name="input")(x)
        recurrent = self.param("recurrent_kernel", nn.initializers.orthogonal(), (width, 4 * width)).astype(self.dtype)

        def step(carry, gates):
            memory, output = carry
            i, f, g, o = jnp.split(gates + output @ recurrent, 4, axis=-1)
            memory = nn.sigmoid(f + 1) * memory + nn.sigmoid(i) * jnp.tanh(g)
            output = (nn.sigmoid(o) * jnp.tanh(memory)).astype(self.dtype)
            return (memory, output), output

        # Made from the inputs, so that inside `shard_map` they belong to one worker, as what follows them does.
        start = jnp.zeros_like(x[:, 0], jnp.float32), jnp.zeros_like(x[:, 0], self.dtype)
        _, outputs = jax.lax.scan(step, start, of_inputs.swapaxes(0, 1))
        return outputs.swapaxes(0, 1)
