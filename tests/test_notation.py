"""A compressor's text: what is read, what comes back, and what is refused, with the place."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxcompress.notation
from jaxcompress.base import Call, Compressor, parseable
from jaxcompress.notation import ExpressionError, parse, unparse


def _made(*arguments: Any) -> Compressor:
    return Compressor(init=lambda key, params: arguments, reduce=None, message_bits=None)  # type: ignore


@parseable
def plain() -> Compressor:
    return _made()


@parseable
def sparse(density: float, inner: Compressor = plain(), block: int | None = None) -> Compressor:  # noqa: B008
    if not 0 < density <= 1:
        raise ValueError(f"density is the fraction kept, in (0, 1]; got {density}.")
    return _made(density, inner, block)


@parseable
def narrow(dtype: str = "bfloat16", shift: float = 0, sharp: bool = False) -> Compressor:
    return _made(dtype, shift, sharp)


@parseable
def memory(inner: Compressor) -> Compressor:
    return _made(inner)


@parseable
def sequence(schedule, *steps: Compressor) -> Compressor:
    return _made(schedule, *steps)


@parseable
def route(compressors: dict, labels) -> Compressor:
    return _made(compressors, labels)


@parseable
def after(steps: int):
    return lambda step: step >= steps


@parseable
def by_name(patterns: dict, default: str = "rest"):
    return lambda path: patterns.get(path, default)


@parseable
def old() -> Compressor:
    return _made("old")


def secret():
    raise AssertionError("a text reached a function that is no constructor")


def _other_default():
    """A constructor whose name belongs to another one, with other defaults."""

    def narrow(shift: int | None = 8) -> Compressor:
        return _made(shift)

    narrow.__module__ = "jaxcompress.small"
    return narrow


CONSTRUCTORS = [plain, sparse, narrow, memory, sequence, route, after, by_name]


@pytest.fixture(autouse=True, scope="module")
def small_constructors():
    """Those of this file in the place of the library's own."""
    with pytest.MonkeyPatch.context() as patch:
        for function in [*CONSTRUCTORS, secret]:
            patch.setattr(function, "__module__", "jaxcompress.small")
            patch.setattr(jaxcompress, function.__name__, function, raising=False)
        patch.setattr(
            jaxcompress, "__all__", [*(f.__name__ for f in CONSTRUCTORS), "secret"], raising=False
        )
        patch.setattr(old, "__module__", "jaxcompress.contrib.small")
        patch.setattr(jaxcompress.contrib, "old", old, raising=False)
        patch.setattr(jaxcompress.contrib, "__all__", ["old"])
        yield


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("plain()", "plain()"),
        ("  sparse( density = 0.01 )\n", "sparse(0.01)"),
        ("sparse(0.01,\n  inner=narrow())", "sparse(0.01, inner=narrow())"),
        ("sparse(1e-3, plain(), 8)", "sparse(0.001, block=8)"),
        ("narrow(shift=-1.5, sharp=True)", "narrow(shift=-1.5, sharp=True)"),
        ("narrow('bfloat16')", "narrow()"),
        ("memory(old())", "memory(old())"),
        ("sequence(after(5), sparse(0.5), plain())", "sequence(after(5), sparse(0.5), plain())"),
        (
            'route({"m": memory(sparse(0.1)), "rest": plain()}, by_name({"*w*": "m"}))',
            "route({'m': memory(sparse(0.1)), 'rest': plain()}, by_name({'*w*': 'm'}))",
        ),
    ],
)
def test_a_text_reads_and_comes_back_in_its_one_form(text, canonical):
    assert unparse(parse(text)) == canonical
    assert unparse(parse(canonical)) == canonical


def test_the_values_arrive():
    assert parse("narrow('float16', -2, sharp=True)").init(None, None) == ("float16", -2, True)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "empty"),
        ("sparse(0.01", 7, "never closed"),
        ("memory(sparce(0.01))", 8, "unknown constructor 'sparce'; did you mean 'sparse'?"),
        ("zzz()", 1, "known are after, by_name"),
        ("memory(inner=sprse)", 14, "unknown name 'sprse'; did you mean 'sparse'?"),
        ("memory(plain)", 8, "plain must be called: plain()"),
        ("memory(sparse(densty=0.01))", 15, "unknown argument 'densty'; did you mean 'density'?"),
        (
            "memory(sparse())",
            8,
            (
                "missing a required argument: 'density'; write sparse(density, inner=plain(),"
                " block=None)"
            ),
        ),
        ("plain(1)", 1, "too many positional arguments"),
        ("sparse(0.1, density=0.1)", 1, "multiple values for argument 'density'"),
        ("memory(sparse(1.5))", 8, "sparse: density is the fraction kept, in (0, 1]; got 1.5."),
        ("memory(sparse('x'))", 8, "sparse: "),
        ("memory(0.5)", 1, "memory: inner must be a compressor, got 0.5"),
        ("sequence(after(5), after(6))", 1, "steps must be a compressor, got after(6)"),
        ("after(5)", 1, "not a compressor"),
        ("0.01", 1, "not a compressor"),
        ("memory(secret())", 8, "secret is called in Python, and is no compressor"),
        ("memory(secret)", 8, "secret is called in Python, and is no compressor"),
        ("__import__('os')", 1, "unknown constructor"),
        ("plain().init()", 1, "plain name, or module.name"),
        ("plain.init()", 1, "module 'plain' is not allowed"),
        ("plain(sharp=True)", 7, "unknown argument 'sharp'"),
        ("memory(plain.init)", 8, "expected"),
        ("sparse(0.1 * 2)", 8, "expected"),
        ("sparse(--0.1)", 8, "expected"),
        ("sparse(1j)", 8, "expected"),
        ("sparse(*[0.1])", 8, "expected"),
        ("sparse(**{'density': 0.1})", 8, "** is not allowed"),
        ("narrow(f'{secret()}')", 8, "expected"),
        ("narrow((lambda: 1)())", 9, "plain name"),
        ("route({**{}}, 1)", 10, "a key must be a literal"),
        ("route({plain(): plain()}, 1)", 8, "a key must be a literal"),
        ("route({'a': plain(), 'a': plain()}, 1)", 22, "key 'a' stands twice"),
        ("narrow('µ…', shift=plain(3))", 20, "too many positional"),
        ("plain(); plain()", 8, "invalid syntax"),
        ("-" * 5000 + "1", 1, ""),
        ("(" * 500, 201, "too many nested"),
        ("plain(\0)", None, ""),
    ],
)
def test_what_is_no_expression_is_refused_at_its_place(text, column, words):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    error = caught.value
    assert words in error.message
    assert column in (None, error.column)
    *_, shown, caret = str(error).split("\n")
    begin = max(0, error.column - 1 - 100)
    assert shown == "  " + error.text[begin : begin + 200]
    assert caret == " " * (error.column + 1 - begin) + "^"


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memory(" * 70 + "plain()" + ")" * 70, "nested 7"),
        ("route({'" + "a" * 10**7 + "': plain()}, 1)", "at most 100,000 are read"),
        ("sparse(" + "9" * 5000 + ")", "Exceeds the limit"),
        ("route([" + "[" * 100 + "]" * 100 + "], 1)", "nested 10"),
        ("sparse(9**9**9)", "expected a constructor's call"),
        ("plain().init.__globals__", "expected a constructor's call"),
        ("__import__('os').system('id')", "only a constructor's plain name"),
        ("[x for x in ().__class__.__base__.__subclasses__()]", "expected a constructor's call"),
        ("f'{plain()}'", "expected a constructor's call"),
        ("(lambda: plain())()", "only a constructor's plain name"),
    ],
)
def test_texts_of_strangers_run_no_code_and_end_in_a_short_message(text, words):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert words in caught.value.message
    assert len(str(caught.value)) < 500


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("value", [None, 0.01, b"plain()"])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(
        ExpressionError, match=r"parse reads text, as in parse\('top_k\(0.01\)'\), and got no"
    ):
        parse(value)


def test_a_text_calls_what_contrib_exports():
    assert parse("old()").init(None, None) == ("old",)


def test_an_argument_given_twice_is_refused():
    with pytest.raises(ExpressionError, match=r"twice|repeated"):
        parse("sparse(density=0.1, density=0.2)")


def test_an_error_survives_the_way_to_another_process():
    error = ExpressionError("no", "plain(", 6)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("compressor", "why"),
    [
        (_made(), "other than literals"),
        (memory(_made()), "other than literals"),
        (sequence(lambda step: 0, plain()), "other than literals"),
        (narrow(shift=float("nan")), "unknown name 'nan'"),
        (sparse(np.float64(0.5)), "other than literals"),
        (plain()._replace(call=Call(secret, {})), "secret is called in Python"),
        (plain()._replace(call=Call(_other_default(), {"shift": 0})), "back as 'narrow()'"),
    ],
)
def test_what_has_no_text_says_why(compressor, why):
    with pytest.raises(ValueError, match="cannot be written as text") as caught:
        unparse(compressor)
    assert why in str(caught.value)


NUMBERS = st.one_of(st.integers(-(10**6), 10**6), st.floats(allow_nan=False, allow_infinity=False))
LEAVES = st.one_of(
    st.just("plain()"),
    st.builds("sparse({!r})".format, st.floats(0.001, 1)),
    st.builds(
        "narrow(dtype={!r}, shift={!r}, sharp={!r})".format,
        st.text(max_size=8),
        NUMBERS,
        st.booleans(),
    ),
)
TEXTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("memory({})".format, inner),
        st.builds("sparse(inner={1}, density={0!r})".format, st.floats(0.001, 1), inner),
        st.builds("sequence(after({}), {}, {})".format, st.integers(0, 99), inner, inner),
        st.builds("route({{{!r}: {}}}, by_name({{}}))".format, st.text(max_size=8), inner),
    ),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@given(TEXTS)
def test_reading_what_was_written_changes_nothing(text):
    canonical = unparse(parse(text))
    assert unparse(parse(canonical)) == canonical


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="plainsre(){}[]=,.*'\"0123456789_-: \n\\µ", max_size=40))
def test_any_text_is_a_compressor_or_an_expression_error(text):
    try:
        assert isinstance(parse(text), Compressor)
    except ExpressionError as error:
        assert 1 <= error.column <= len(error.text) + 1
