"""What everything is made of: the rest of a reduction, and a codec in two steps."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxcompress import Codec, Reduced, block_top_k, qsgd
from jaxcompress.base import staged, stages_of

X = jnp.asarray(np.random.default_rng(0).standard_normal(200), jnp.float32)
KEY = jax.random.key(0)


def test_the_rest_is_what_was_not_sent():
    assert Reduced({"a": X}, {"a": X / 4}, 0).rest_of({"a": X})["a"].tolist() == (X - X / 4).tolist()


def test_a_scheme_may_give_the_rest_itself():
    assert Reduced(X, X, 0, rest=X / 2).rest_of(X).tolist() == (X / 2).tolist()


def test_both_steps_together_are_the_codec():
    codec = block_top_k(0.1, block=32, inner=qsgd(8)).codec
    stages = stages_of(codec)
    pick_key, make_key = jax.random.split(KEY)
    message = stages.make(make_key, stages.pick(pick_key, X), X)
    arrived = stages.read(message, X)
    decoded = codec.decode(codec.encode(KEY, X), X)
    np.testing.assert_array_equal(stages.put(arrived, X, 1), decoded)
    np.testing.assert_array_equal(stages.rest(X, arrived), X - decoded)
    np.testing.assert_allclose(stages.add(X, arrived, 0.25), X + 0.25 * decoded, rtol=1e-6)


def test_a_codec_of_one_step_picks_everything():
    codec = Codec(lambda key, x: x.astype(jnp.bfloat16), lambda message, like: message.astype(like.dtype))
    stages = stages_of(codec)
    arrived = stages.read(stages.make(KEY, stages.pick(KEY, X), X), X)
    np.testing.assert_array_equal(stages.put(arrived, X, 1), codec.decode(codec.encode(KEY, X), X))
    np.testing.assert_array_equal(stages.rest(X, arrived), X - arrived)


def test_a_sum_is_in_the_dtype_of_the_total():
    # In bfloat16 256 + 1 is 256.
    stages = stages_of(Codec(lambda key, x: x, lambda message, like: message))
    total = stages.add(jnp.full(1, 256.0), jnp.ones(1, jnp.bfloat16), 1.0)
    assert total.dtype == jnp.float32 and total.tolist() == [257.0]


def test_a_staged_codec_keeps_its_piece_and_its_steps():
    stages = stages_of(block_top_k(0.1).codec)
    assert staged(stages, 64).piece == 64 and staged(stages, None).stages is stages
