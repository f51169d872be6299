"""The LSTM: its formula, and that no logit depends on later characters."""

import jax
import jax.numpy as jnp
import numpy as np

from train.models.lstm import LSTM

MODEL = LSTM(num_classes=7, width=6)
TOKENS = jax.random.randint(jax.random.key(1), (3, 9), 0, 7)
PARAMS = jax.jit(lambda: MODEL.init(jax.random.key(0), TOKENS, train=False))()["params"]


@jax.jit
def logits_of(tokens):
    return MODEL.apply({"params": PARAMS}, tokens, train=False)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def expected_layer(params, x):
    """One layer in NumPy, in float64."""
    cell = output = np.zeros_like(x[:, 0])
    outputs = []
    for each in x.swapaxes(0, 1):
        gates = (
            each @ params["input"]["kernel"]
            + params["input"]["bias"]
            + output @ params["recurrent_kernel"]
        )
        i, f, g, o = np.split(gates, 4, axis=-1)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(g)
        output = sigmoid(o) * np.tanh(cell)
        outputs.append(output)
    return np.stack(outputs, axis=1)


def test_logits_are_those_of_the_formula():
    # Biases start at zero; shifted so that they matter.
    moved = jax.tree.map(lambda x: x + 0.1, PARAMS)
    found = MODEL.apply({"params": moved}, TOKENS, train=False)
    numpy_params = jax.tree.map(lambda x: np.asarray(x, np.float64), moved)
    x = numpy_params["token_embedding"]["embedding"][TOKENS]
    for layer in ("Layer_0", "Layer_1"):
        x = expected_layer(numpy_params[layer], x)
    expected = x @ numpy_params["unembedding"]["kernel"] + numpy_params["unembedding"]["bias"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_later_character_changes_no_earlier_logit_but_all_later_ones():
    before = logits_of(TOKENS)
    after = logits_of(TOKENS.at[:, 4].set((TOKENS[:, 4] + 1) % 7))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (jnp.abs(before - after).max(axis=-1)[:, 4:] > 0).all()


def test_text_can_have_any_length():
    np.testing.assert_allclose(logits_of(TOKENS[:, :5]), logits_of(TOKENS)[:, :5], atol=1e-6)


def test_cell_state_is_float32_in_a_bfloat16_computation():
    # A bfloat16 state would stop growing at 1, where the next value is 1/128 away.
    model = LSTM(num_classes=2, dtype=jnp.bfloat16, width=1, layers=1)
    tokens = jnp.zeros((1, 512), jnp.int32)
    params = jax.tree.map(
        jnp.zeros_like, model.init(jax.random.key(0), tokens, train=False)["params"]
    )
    # Gates: add 1/256, forget nothing, output the whole state.
    params["Layer_0"]["input"]["bias"] = jnp.array([20.0, 20.0, 1 / 256, 20.0])
    params["unembedding"]["kernel"] = jnp.array([[1.0, 0.0]])
    logits = model.apply({"params": params}, tokens, train=False)
    np.testing.assert_allclose(logits[0, -1, 0], np.tanh(2), rtol=0.01)
