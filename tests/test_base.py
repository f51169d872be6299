"""The core records: what a call writes and visits, and state of one worker as a pytree."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress import (
    Compressor,
    PerWorker,
    block_top_k,
    by_path,
    cast,
    dense,
    error_feedback,
    partition,
    qsgd,
    switch,
    top_k,
    warmup,
)
from jaxcompress.base import Call, constructor_name, notation_of, parseable, walk


def bare() -> Compressor:
    """A compressor of one's own, which no call made."""
    return Compressor(init=lambda key, params: (), reduce=None, message_bits=None)  # type: ignore


@parseable
def made(
    first: int, second: str = "b", *rest: float, option: float | None = 0.5, **more: int
) -> Compressor:
    """A constructor with parameters of every kind."""
    del first, second, rest, option, more
    return bare()


@parseable
def named(*, steps: int) -> Compressor:
    """A constructor whose required argument must be named."""
    del steps
    return bare()


def test_a_compressor_without_flags_is_a_stateless_contraction():
    plain = bare()
    assert (plain.has_memory, plain.contracts, plain.sparsifies) == (False, True, False)
    assert plain.codec is plain.call is plain.dense_transform is None


@pytest.mark.parametrize(
    ("compressor", "text"),
    [
        (lambda: made(1), f"{__name__}.made(1)"),
        (lambda: made(first=1, second="b", option=0.5), f"{__name__}.made(1)"),
        (lambda: made(1, "c"), f"{__name__}.made(1, second='c')"),
        (lambda: named(steps=1), f"{__name__}.named(steps=1)"),
        (lambda: error_feedback(made(1)), f"error_feedback({__name__}.made(1))"),
        (lambda: error_feedback(dense(), decay=1), "error_feedback(dense())"),
        (lambda: made(1, option=None), f"{__name__}.made(1, option=None)"),
        (lambda: top_k(density=0.1), "top_k(0.1)"),
        (lambda: top_k(0.1, qsgd(8)), "top_k(0.1, inner=qsgd(8))"),
        (lambda: top_k(0.1, inner=dense()), "top_k(0.1)"),
        (
            lambda: switch(warmup(5), dense(), cast("bfloat16")),
            "switch(warmup(5), dense(), cast('bfloat16'))",
        ),
        (
            lambda: partition({"a": dense(), "b": qsgd(4)}, by_path({"*": "a"}, default="b")),
            "partition({'a': dense(), 'b': qsgd(4)}, by_path({'*': 'a'}, default='b'))",
        ),
    ],
)
def test_the_repr_is_the_canonical_call(compressor, text):
    assert repr(compressor()) == text


def test_the_repr_of_a_users_array_needs_no_truth_value():
    @parseable
    def weighted(inner: Compressor, weights: Any = None) -> Compressor:
        return inner._replace(call=None)

    text = f"{__name__}.weighted(dense(), weights=array([0, 1]))"
    assert repr(weighted(dense(), np.arange(2))) == text


def test_a_call_holds_the_constructor_and_what_it_was_given():
    inner = qsgd(8)
    call = top_k(0.1, inner=inner).call
    assert isinstance(call, Call) and call.constructor is top_k
    assert call.arguments == {"density": 0.1, "inner": inner}


def test_without_a_call_the_repr_is_no_notation():
    text = repr(bare())
    assert text == "Compressor(reduce=None)"
    assert repr(error_feedback(bare())) == f"error_feedback({text})"


def test_what_is_no_compressor_records_its_call_too():
    assert repr(warmup(5).call) == "warmup(5)"
    assert notation_of({"a": warmup(5), 2: 0.5}) == "{'a': warmup(5), 2: 0.5}"


def test_a_parseable_constructor_keeps_its_name_and_says_that_it_is_one():
    assert (
        made.__name__ == "made" and made.__doc__ == "A constructor with parameters of every kind."
    )
    assert made.parseable and not getattr(bare, "parseable", False)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("jaxcompress", "f"),
        ("jaxcompress.contrib.f", "f"),
        ("jaxcompress_more", "jaxcompress_more.f"),
        ("pkg.jaxcompress.f", "pkg.jaxcompress.f.f"),
    ],
)
def test_only_the_library_has_names_without_a_module(module, name):
    def f():
        pass

    f.__module__ = module
    assert constructor_name(f) == name


def test_copies_of_a_record_are_other_compressors_of_the_same_call():
    # `_replace` makes variants; their identity is what programs are cached by.
    assert repr(top_k(0.1)._replace(has_memory=True)) == "top_k(0.1)"


def test_walk_visits_every_nested_compressor_in_order():
    text = "partition, error_feedback, top_k, qsgd, switch, dense, block_top_k, dense"
    nested = partition(
        {
            "a": error_feedback(top_k(0.1, inner=qsgd(8))),
            "b": switch(warmup(5), dense(), block_top_k(0.1, inner=dense())),
        },
        by_path({"*": "a"}),
    )
    assert [one.call.constructor.__name__ for one in walk(nested) if one.call] == text.split(", ")


def test_walk_visits_containers_and_compressors_without_a_call():
    one, other = bare(), error_feedback(bare())
    assert list(walk({"a": one, "b": (other, [dense()])}))[:2] == [one, other]
    assert len(list(walk({"a": one, "b": (other, [dense()])}))) == 4
    assert list(walk(one)) == [one]


def test_walk_passes_defaults_over():
    # A default is no part of the call, as in its text.
    assert list(map(repr, walk(top_k(0.1)))) == ["top_k(0.1)"]


def test_per_worker_state_is_a_pytree_of_its_value():
    state = PerWorker({"a": jnp.arange(3.0)})
    doubled = jax.jit(functools.partial(jax.tree.map, lambda x: 2 * x))(state)
    assert isinstance(doubled, PerWorker) and doubled.value["a"].tolist() == [0, 2, 4]
    ((path, _),) = jax.tree_util.tree_leaves_with_path(state)
    assert jax.tree_util.keystr(path) == ".value['a']"


@pytest.mark.parametrize("value", [5, None, "top_k(0.1)", len])
def test_nothing_is_found_in_what_holds_no_compressor(value):
    assert list(walk(value)) == []
