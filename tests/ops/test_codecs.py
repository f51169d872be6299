"""What is known of a codec: that there is one, and the size of its messages."""

import jax
import jax.numpy as jnp
import pytest

from jaxcompress import dense, error_feedback, qsgd
from jaxcompress.ops.codecs import codec_bits, codec_of


def test_the_size_of_a_message_is_known_from_the_shape():
    assert codec_bits(dense().codec, jax.ShapeDtypeStruct((4, 4), jnp.float32)) == 16 * 32
    assert codec_bits(qsgd(8, group=8).codec, jnp.zeros(16)) == 16 * 8 + 2 * 32


def test_the_codec_of_a_compressor():
    compressor = qsgd(4)
    assert codec_of("two_phase", compressor, "") is compressor.codec


@pytest.mark.parametrize("inner", [error_feedback(dense()), dense()._replace(codec=None, expression=None)])
def test_a_compressor_without_one_is_refused_with_the_way_out(inner):
    with pytest.raises(ValueError, match=r"has none.*error_feedback\(two_phase\(qsgd\(8\)\)\)"):
        codec_of("two_phase", inner, "two_phase(qsgd(8))")


def test_what_is_no_compressor_is_refused():
    with pytest.raises(
        ValueError, match=r"one_phase takes a compressor, as in one_phase\(qsgd\(8\)\); got 'qsgd\(8\)'"
    ):
        codec_of("one_phase", "qsgd(8)", "one_phase(qsgd(8))")
