"""What is done with a codec without a network: encode, decode, and the size of its messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcompress
from benchmarks.common.expressions import example, public_schemes
from jaxcompress import (
    Codec,
    block_top_k,
    cast,
    dense,
    error_feedback,
    int8,
    natural,
    qsgd,
    top_k,
)
from jaxcompress.contrib import svd
from jaxcompress.ops.codecs import (
    codec_bits,
    codec_of,
    codec_of_parts,
    decode,
    encode,
    value_codec_of,
)
from jaxcompress.ops.sparse_array import Sparse

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).standard_normal(200), jnp.float32)


def test_the_size_of_a_message_is_known_from_the_shape():
    assert codec_bits(dense().codec, jax.ShapeDtypeStruct((4, 4), jnp.float32)) == 16 * 32
    assert codec_bits(qsgd(8, group=8).codec, jnp.zeros(16)) == 16 * 8 + 2 * 32
    assert codec_bits(block_top_k(0.25, block=16).codec, jnp.zeros(64)) == 16 * (32 + 4)


def test_the_codec_of_a_compressor():
    compressor = qsgd(4)
    assert codec_of("two_phase", compressor, "") is compressor.codec


def test_an_array_goes_there_and_back():
    codec = cast("bfloat16").codec
    message = encode(codec, KEY, X)
    assert message.dtype == jnp.bfloat16
    np.testing.assert_array_equal(
        decode(codec, message, X), X.astype(jnp.bfloat16).astype(jnp.float32)
    )


def test_parts_of_a_vector_are_encoded_alone():
    counts = [7, 30, 0, 7, 1]
    x = X[: sum(counts)] * jnp.repeat(4.0 ** jnp.arange(5), jnp.array(counts))
    codec = int8().codec
    parts = codec_of_parts(codec, counts)
    found = decode(parts, encode(parts, KEY, x), x)
    ends = np.cumsum(counts)
    alone = [x[end - count : end] for end, count in zip(ends, counts, strict=True) if count]
    expected = [decode(codec, encode(codec, KEY, one), one) for one in alone]
    np.testing.assert_array_equal(found, np.concatenate(expected))
    sizes = [codec_bits(codec, one) for one in alone]
    assert sum(sizes) <= codec_bits(parts, x) < sum(sizes) + 32 * len(sizes)


def test_what_is_selected_comes_back_dense():
    codec = block_top_k(0.25, block=40).codec
    message = encode(codec, KEY, X)
    assert isinstance(codec.decode(message, X), Sparse)
    rows = np.asarray(X).reshape(5, 40)
    least = np.sort(np.abs(rows), axis=1)[:, -10][:, None]
    expected = np.where(np.abs(rows) >= least, rows, 0).ravel()
    np.testing.assert_array_equal(decode(codec, message, X), expected)


def test_the_selection_and_the_encoding_have_keys_of_their_own():
    seen = []

    def select(key, x):
        seen.append(key)
        return Sparse(jnp.zeros((1, 1), jnp.int32), x[:1][None], x.size)

    def encode_selected(key, selected):
        seen.append(key)
        return selected.values

    codec = Codec(encode_selected, lambda message, like: message, select)
    assert encode(codec, KEY, X).tolist() == [[float(X[0])]]
    selected, encoded, given = (jax.random.key_data(key).tolist() for key in (*seen, KEY))
    assert selected != encoded and given not in (selected, encoded)


@pytest.mark.parametrize(
    "inner", [error_feedback(dense()), dense()._replace(codec=None, call=None)]
)
def test_a_compressor_without_one_is_refused_with_the_way_out(inner):
    with pytest.raises(ValueError, match=r"has none.*, rotated\(two_phase\(qsgd\(8\)\)\)"):
        codec_of("two_phase", inner, "two_phase(qsgd(8))")


def test_what_is_no_compressor_is_refused():
    with pytest.raises(
        ValueError,
        match=r"one_phase takes a compressor, as in one_phase\(qsgd\(8\)\); got 'qsgd\(8\)'",
    ):
        codec_of("one_phase", "qsgd(8)", "one_phase(qsgd(8))")


@pytest.mark.parametrize("inner", [dense(), qsgd(8), natural(), top_k(0.1)], ids=repr)
def test_a_codec_that_makes_a_vector_no_larger_is_one_for_values(inner):
    assert value_codec_of("a sparsifier", inner, "") is inner.codec


def test_a_codec_that_makes_a_vector_larger_is_refused_with_the_way_out():
    with pytest.raises(
        ValueError,
        match=r"a sparsifier sends its values as a vector, which svd\(2\) makes larger\."
        r" Use a quantiser for the values, as in top_k\(0.01, inner=qsgd\(8\)\)",
    ):
        top_k(0.1, inner=svd(2))
    with pytest.raises(ValueError, match=r"which top_k\(0.99\) makes larger"):
        value_codec_of("a sparsifier", top_k(0.99), "top_k(0.01)")


def makers_of_narrow_floats(text):
    """The operations that give the parts of a message in fewer than 32 bits."""
    codec = jaxcompress.parse(text).codec
    x = jax.ShapeDtypeStruct((64, 64), "float32")
    program = jax.make_jaxpr(lambda x: encode(codec, KEY, x))(x).jaxpr
    made = {result: each.primitive.name for each in program.eqns for result in each.outvars}
    kinds = [(part, part.aval.dtype) for part in program.outvars]
    return {
        made[part]
        for part, kind in kinds
        if jnp.issubdtype(kind, jnp.floating) and kind.itemsize < 4
    }


WITH_CODEC = [
    text for text in map(example, public_schemes()) if jaxcompress.parse(text).codec is not None
]


@pytest.mark.parametrize("text", WITH_CODEC)
def test_no_rounding_to_a_narrow_float_can_be_undone(text):
    """On GPUs, XLA would undo it for the residual: see `rounded_to`."""
    assert makers_of_narrow_floats(text) <= {"optimization_barrier"}


@pytest.mark.parametrize("text", ["cast('bfloat16')", "cast('float16')", "float8('e5m2')"])
def test_a_narrow_float_is_rounded_behind_a_barrier(text):
    assert makers_of_narrow_floats(text) == {"optimization_barrier"}
