"""A text with constructors of a user's module: what it reads, imports and calls, and no more."""

import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import first_state, random_updates, run
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxcompress
from jaxcompress import ExpressionError, error_feedback, parse, top_k, unparse

MINE = """
from __future__ import annotations

import functools
import os

import jaxcompress
from jaxcompress import dense, parseable, top_k

CALLED = []


class Everything:
    def __getattr__(self, name):
        return True

    def __call__(self):
        CALLED.append("everything")


everything = Everything()


@parseable
def outliers(deviations: float, inner: jaxcompress.Compressor = dense()):
    if deviations <= 0:
        raise ValueError(f"deviations must be above 0; got {deviations}.")
    return jaxcompress.threshold(deviations, capacity=0.5, inner=inner)


@parseable
def after(*, steps: int, first: int = 0):
    return lambda count: 1 * (count >= steps + first)


@parseable
def raises(error: str):
    raise {"KeyError": KeyError, "OSError": OSError}[error]("its reason")


@parseable
def returns(value=None):
    return value


def undecorated():
    CALLED.append("undecorated")
    return dense()


def hidden():
    @parseable
    def inside():
        return dense()

    return inside()


alias = outliers
partial = functools.partial(undecorated)


def __getattr__(name):
    CALLED.append(name)
    raise AttributeError(name)
"""
FILES = {
    "own_codecs.py": MINE,
    "own_package/__init__.py": "from own_package.inner.codecs import small",
    "own_package/inner/__init__.py": "",
    "own_package/inner/codecs.py": """
        from jaxcompress import dense, parseable

        @parseable
        def small(share=0.5):
            return dense()
    """,
    "own_plain.py": """
        from jaxcompress import dense

        def bare():
            return dense()._replace(call=None)
    """,
    "own_never.py": "raise AssertionError('imported')",
    "own_broken.py": "import jaxcompress\njaxcompress.no_such_function()",
    "own_syntax.py": "def (",
    "own_exit.py": "raise SystemExit('bye')",
}
MODULES = ("own_codecs", "own_package", "own_package.inner.codecs", "own_plain")
BROKEN = ("own_broken", "own_syntax", "own_missing", "own_exit")


@pytest.fixture(autouse=True, scope="module")
def own_modules(tmp_path_factory):
    """The modules of a user, importable and not yet imported."""
    folder = tmp_path_factory.mktemp("own")
    for name, source in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(source))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


LEAVES = st.one_of(
    st.just("dense()"),
    st.just("own_package.inner.codecs.small()"),
    st.builds("own_package.inner.codecs.small(share={!r})".format, st.floats(0.6, 1)),
    st.builds("own_codecs.outliers({!r})".format, st.floats(0.001, 9)),
    st.builds("top_k({!r}, inner=qsgd(8))".format, st.floats(0.001, 1)),
)
TEXTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            "switch(own_codecs.after(steps={}), {}, {})".format, st.integers(0, 99), inner, inner
        ),
        st.builds("partition({{'a': {}, 'b': {}}}, by_shape())".format, inner, inner),
        st.builds("monitor({})".format, inner),
    ),
    max_leaves=4,
)


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_a_text_with_modules_comes_back(text):
    assert unparse(parse(text, MODULES)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("own_codecs . outliers(deviations=2.0, inner=dense())", "own_codecs.outliers(2.0)"),
        ("own_codecs.outliers(2.0,\n qsgd(8))", "own_codecs.outliers(2.0, inner=qsgd(8))"),
        ("own_package.inner.codecs.small(0.5)", "own_package.inner.codecs.small()"),
        ("error_feedback(own_codecs.outliers(2.0))", "error_feedback(own_codecs.outliers(2.0))"),
    ],
)
def test_a_text_with_modules_has_one_form(text, canonical):
    assert unparse(parse(text, MODULES)) == canonical


def test_a_text_gives_what_the_same_call_gives_in_python():
    import own_codecs  # pyright: ignore[reportMissingImports]

    like = {"x": jnp.zeros(64)}
    updates = random_updates(0, like)
    read, made = parse("own_codecs.outliers(0.9)", MODULES), own_codecs.outliers(0.9)
    assert read.call.constructor is own_codecs.outliers and read.call.arguments == {
        "deviations": 0.9
    }
    outcomes = [run(one, updates, first_state(one, like)).sent["x"] for one in (read, made)]
    np.testing.assert_array_equal(*outcomes)
    x = np.asarray(updates["x"])
    assert 0 < np.count_nonzero(outcomes[0]) < x.size


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("own_never.outliers()", ()),
        ("own_never.outliers()", ("own_codecs", "own_never.inner", "own")),
        ("dense()", ("own_never",)),
        ("memory(own_never.outliers)", ("own_never",)),
        ("own_never.outliers", ("own_never",)),
        ("own_never.outliers().init()", ("own_never",)),
        ("own_never[0].outliers()", ("own_never",)),
    ],
)
def test_a_module_is_imported_only_if_it_is_allowed_and_called(text, modules):
    try:
        parse(text, modules)
    except ExpressionError as error:
        assert "imported" not in str(error)
    assert "own_never" not in sys.modules


ALLOW = (
    "module 'mine' is not allowed; allow it by parse(text, modules=('mine',)), or in the training"
    " program by --compressor-modules mine"
)


@pytest.mark.parametrize(
    ("text", "modules", "column", "words"),
    [
        ("error_feedback(mine.outliers(2.0))", (), 16, ALLOW),
        ("'µ…'; mine.f()"[6:], (), 1, ALLOW),
        ("partition({'µ…': mine.f()}, by_shape())", (), 18, ALLOW),
        ("mine.f()", ("a", "b"), 1, "modules=('a', 'b', 'mine')"),
        ("mine.f()", ("a", "b"), 1, "--compressor-modules a b mine"),
        ("own_package.inner.codecs.small()", ("own_package",), 1, "codecs' is not allowed"),
        ("jaxcompress.top_k(0.1)", (), 1, "write top_k"),
        ("jaxcompress.contrib.nuqsgd(4)", ("jaxcompress.contrib",), 1, "write nuqsgd"),
        ("monitor(outliers(2.0))", MODULES, 9, "before a constructor of own_codecs, own_pac"),
        ("monitor(topk(0.1))", MODULES, 9, "did you mean 'top_k'?"),
        (
            "monitor(own_codecs.outlier(2.0))",
            MODULES,
            9,
            "unknown constructor 'own_codecs.outlier'; did you mean 'own_codecs.outliers'?",
        ),
        ("own_codecs.zzzzzzzzzzzzzzzzzzz()", MODULES, 1, "are own_codecs.after, own_codecs.out"),
        ("own_plain.zzz()", MODULES, 1, "own_plain decorates none with @jaxcompress.parseable"),
        ("own_plain.bare()", MODULES, 1, "own_plain.bare: decorate it with @jaxcompress.parseable"),
        ("own_codecs.undecorated()", MODULES, 1, "decorate it with @jaxcompress.parseable"),
        ("own_codecs.partial()", MODULES, 1, "unknown constructor"),
        ("own_codecs.everything()", MODULES, 1, "unknown constructor"),
        ("own_codecs.CALLED()", MODULES, 1, "unknown constructor"),
        ("own_codecs.os()", MODULES, 1, "unknown constructor"),
        ("own_codecs.os.getcwd()", MODULES, 1, "module 'own_codecs.os' is not allowed"),
        ("own_codecs.__getattr__('x')", MODULES, 1, "decorate it"),
        ("own_codecs.invented()", MODULES, 1, "unknown constructor"),
        ("own_codecs.alias(2.0)", MODULES, 1, "is own_codecs.outliers: write that name"),
        ("own_codecs.top_k(0.1)", MODULES, 1, "own_codecs.top_k is top_k: write that name"),
        ("own_package.small()", MODULES, 1, "is own_package.inner.codecs.small: write"),
        ("monitor(own_codecs.outliers)", MODULES, 9, "expected a constructor's call"),
        (
            "monitor(own_codecs.outliers(0))",
            MODULES,
            9,
            "outliers: deviations must be above 0",
        ),
        ("own_codecs.outliers(2, 3)", MODULES, 1, "own_codecs.outliers: inner must be a compress"),
        ("own_codecs.outliers()", MODULES, 1, "write own_codecs.outliers(deviations, inner=dense"),
        ("own_codecs.outliers(deviation=2)", MODULES, 21, "did you mean 'deviations'?"),
        ("own_codecs.outliers(2).init", MODULES, 1, "expected a constructor's call"),
        ("own_codecs.outliers(2).init()", MODULES, 1, "only a constructor's plain name, or module"),
        ("own_missing.f()", BROKEN, 1, "cannot be imported: ModuleNotFoundError: No module named"),
        ("own_broken.f()", BROKEN, 1, "'own_broken' cannot be imported: AttributeError: module"),
        ("own_syntax.f()", BROKEN, 1, "(own_syntax.py, line 1)"),
        ("a" + ".b" * 2000 + "()", MODULES, 1, ""),
    ],
)
def test_what_a_text_may_not_call_is_refused_at_its_place(text, modules, column, words):
    with pytest.raises(ExpressionError) as caught:
        parse(text, modules)
    assert words in caught.value.message
    assert caught.value.column == column


def test_no_refused_text_has_called_anything():
    import own_codecs  # pyright: ignore[reportMissingImports]

    for name in ("undecorated()", "invented()", "__getattr__('x')", "undecorated"):
        with pytest.raises(ExpressionError):
            parse(f"own_codecs.{name}", MODULES)
    assert own_codecs.CALLED == []


@pytest.mark.parametrize("modules", ["own_codecs", None, 5, (None,), b"own_codecs"])
def test_modules_that_are_no_sequence_of_names_are_refused(modules):
    with pytest.raises(ValueError, match=r"as in modules=\('mine',\); got "):
        parse("own_codecs.outliers(2.0)", modules)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("own_codecs.raises('KeyError')", "own_codecs.raises: KeyError: 'its reason'"),
        ("own_codecs.raises('OSError')", "own_codecs.raises: OSError: its reason"),
        (
            "own_codecs.returns()",
            "own_codecs.returns: what is parseable returns a compressor or a function",
        ),
        ("own_codecs.returns(3)", "got 3"),
    ],
)
def test_whatever_a_constructor_does_is_reported_with_its_place(text, reported):
    with pytest.raises(ExpressionError) as error:
        parse(text, MODULES)
    assert reported in str(error.value)
    assert error.value.column == 1


def test_a_list_of_modules_is_as_good_as_a_tuple():
    assert unparse(parse("own_codecs.outliers(2.0)", ["own_codecs"])) == "own_codecs.outliers(2.0)"


def test_a_compressor_without_a_decorator_works_in_python_only():
    import own_plain  # pyright: ignore[reportMissingImports]

    like = {"x": jnp.zeros(8)}
    compressor, updates = top_k(1.0, inner=own_plain.bare()), random_updates(0, like)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, run(compressor, updates, ()).sent, updates))
    with pytest.raises(ValueError, match="cannot be written as text"):
        unparse(error_feedback(own_plain.bare()))


def test_what_its_module_does_not_hold_cannot_be_written():
    import own_codecs  # pyright: ignore[reportMissingImports]

    with pytest.raises(ValueError, match=r"text: .*unknown constructor 'own_codecs\.inside'"):
        unparse(error_feedback(own_codecs.hidden()))


def test_writing_imports_nothing():
    compressor = parse("own_package.inner.codecs.small()", MODULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "own_package.inner.codecs")
        with pytest.raises(ValueError, match="cannot be written as text"):
            unparse(compressor)
        assert "own_package.inner.codecs" not in sys.modules


def test_an_allowed_module_takes_no_plain_name():
    # Only a text with the module can mean its constructors.
    assert parse("top_k(0.1)", MODULES).call.constructor is jaxcompress.top_k
    with pytest.raises(ExpressionError, match="unknown constructor 'after'"):
        parse("switch(after(steps=5), dense(), dense())", MODULES)
