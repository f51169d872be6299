"""What is refused, and in which words."""

import sys

import jax
import pytest

from jaxcompress import (
    block_max,
    block_top_k,
    by_size,
    control_variate,
    dct,
    dense,
    ef21,
    error_feedback,
    hierarchical,
    int2,
    int4,
    momentum_correction,
    power_sgd,
    qsgd,
    random_k,
    rotated,
    shared_top_k,
    sign,
    terngrad,
    threshold,
    top_k,
)
from jaxcompress.contrib import bernoulli, importance_sampled, nuqsgd, sign_majority
from jaxcompress.ops.argument_checks import (
    check_contracts,
    check_flag,
    check_fraction,
    check_integer,
    check_momentum,
    check_sparsifies,
    check_stateless,
    check_weight_decay,
    is_number,
    shown,
)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None])
def test_what_is_no_integer_of_that_size_is_refused(value):
    with pytest.raises(ValueError, match=r"rank is how many, an integer of at least 1; got "):
        check_integer("rank", value, 1, "how many")
    check_integer("rank", 1, 1)


@pytest.mark.parametrize("value", [1, 9, 4.0])
def test_what_is_no_integer_in_a_range_is_refused(value):
    with pytest.raises(ValueError, match=r"bits is an integer from 2 to 8; got "):
        check_integer("bits", value, 2, most=8)
    check_integer("bits", 8, 2, most=8)


@pytest.mark.parametrize("value", [0, 1.0, float("inf"), [], (), None])
def test_what_is_no_bool_is_refused(value):
    with pytest.raises(ValueError, match="rescale is True or False; got "):
        check_flag("rescale", value)
    check_flag("rescale", False)


@pytest.mark.parametrize("value", [0, -0.1, 1.5, float("nan"), True, "0.1", None])
def test_what_is_no_fraction_is_refused(value):
    with pytest.raises(ValueError, match=r"density is the part kept, in \(0, 1\]; got "):
        check_fraction("density", value, "the part kept")
    check_fraction("density", 1, "the part kept")


@pytest.mark.parametrize("value", [-0.1, 1, float("nan"), None])
def test_what_is_no_momentum_is_refused(value):
    with pytest.raises(ValueError, match=r"how much of the velocity is kept, in \[0, 1\); got "):
        check_momentum(value)
    check_momentum(0)


def test_what_is_no_weight_decay_is_refused():
    for value in (-1, float("inf"), float("nan"), None):
        with pytest.raises(ValueError, match="weight_decay is a factor of the parameters"):
            check_weight_decay(value)
    with pytest.raises(ValueError, match="mask is a tree of bools, or a function"):
        check_weight_decay(0.1, "kernel")
    check_weight_decay(0.0, lambda params: params)


def test_a_bool_is_no_number():
    assert is_number(0) and is_number(0.5) and not is_number(True) and not is_number("1")


TAKE_A_NUMBER = [
    *(top_k, block_top_k, threshold, random_k, block_max, qsgd, sign, terngrad),
    *(nuqsgd, bernoulli, importance_sampled, power_sgd, by_size),
    lambda block: rotated(qsgd(4), block),
    lambda tile: dct(top_k(0.1), tile),
    lambda decay: error_feedback(top_k(0.1), decay),
    lambda momentum: momentum_correction(top_k(0.1), momentum),
    lambda rate: control_variate(qsgd(2), rate),
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("constructor", TAKE_A_NUMBER)
def test_a_traced_argument_is_told_why_it_cannot_be_one(constructor):
    def traced(value):
        with pytest.raises(
            ValueError,
            match=r"got a traced value, but arguments of compressors are fixed when a step is"
            r" compiled: keep it out of jit and optax\.inject_hyperparams",
        ):
            constructor(value)
        return value

    jax.jit(traced)(0.5)


def test_a_plain_argument_is_shown_as_python_shows_it():
    assert shown(0.1) == "0.1" and shown("a") == "'a'"


MEMORIES = [error_feedback(top_k(0.1)), control_variate(qsgd(2), 0.1), ef21(top_k(0.1))]


@pytest.mark.parametrize("inner", MEMORIES, ids=repr)
@pytest.mark.parametrize(
    "outer",
    [
        lambda inner: random_k(0.1, inner=inner),
        lambda inner: shared_top_k(0.1, inner=inner),
        lambda inner: power_sgd(2, inner=inner),
        lambda inner: hierarchical(dense(), inner),
        error_feedback,
        ef21,
        momentum_correction,
        lambda inner: control_variate(inner, 0.1),
    ],
)
def test_a_memory_inside_is_refused_by_one_message(outer, inner):
    with pytest.raises(
        ValueError, match=r"^\w+ takes a compressor without a memory; got "
    ) as error:
        outer(inner)
    assert repr(inner) in str(error.value)
    assert "Put one memory outside, as in error_feedback(" in str(error.value)


def test_the_way_out_names_what_belongs_inside():
    with pytest.raises(ValueError, match=r"as in error_feedback\(random_k\(…\)\)\.$"):
        check_stateless("random_k", MEMORIES[0])
    with pytest.raises(ValueError, match=r"as in error_feedback\(…\)\.$"):
        check_stateless("ef21", MEMORIES[0])
    check_stateless("ef21", top_k(0.1))


def test_what_is_no_compressor_is_refused():
    with pytest.raises(ValueError, match=r"such as top_k\(0\.01\); got 'top_k'\.$"):
        check_stateless("ef21", "top_k")
    with pytest.raises(ValueError, match=r"got <function top_k.*; call it, with its arguments"):
        check_stateless("ef21", top_k)


NOISY = [
    qsgd(2),
    terngrad(),
    terngrad(clip=None, group=32),
    nuqsgd(2),
    random_k(0.1, rescale=True),
    random_k(0.9, rescale=True),
    bernoulli(0.1, rescale=True),
    importance_sampled(0.1),
    sign_majority(),
]
CONTRACTIONS = [
    qsgd(8),
    int2(),
    int4(),
    nuqsgd(4),
    random_k(0.1),
    bernoulli(0.1),
    importance_sampled(0.9),
    bernoulli(0.9, rescale=True),
    sign(),
    top_k(0.01),
]


@pytest.mark.parametrize("inner", NOISY, ids=repr)
@pytest.mark.parametrize("outer", [error_feedback, ef21, momentum_correction])
def test_noise_as_large_as_the_update_is_refused_with_the_way_out(outer, inner):
    with pytest.raises(ValueError, match=rf"^{outer.__name__} is unstable around ") as error:
        outer(inner)
    assert f"Use control_variate({inner!r}, 0.1)" in str(error.value)
    control_variate(inner, 0.1)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("group", [0, 2.0, True, sys.maxsize])
def test_a_group_is_a_number_of_entries(group):
    with pytest.raises(ValueError, match="group is the number of entries that share a scale, an"):
        qsgd(8, group=group)


@pytest.mark.parametrize("inner", CONTRACTIONS, ids=repr)
def test_a_contraction_is_accepted(inner):
    check_contracts("error_feedback", inner)
    error_feedback(inner)


@pytest.mark.parametrize("inner", [qsgd(8), sign(), power_sgd(2)], ids=repr)
def test_masking_refuses_what_sends_a_part_of_every_entry(inner):
    with pytest.raises(
        ValueError, match=r"no momentum would be left\. Write momentum_correction\(.*masking=False"
    ):
        check_sparsifies("momentum_correction", inner)
    with pytest.raises(ValueError, match="resets the velocity of every entry sent"):
        momentum_correction(inner)
    momentum_correction(inner, masking=False)


@pytest.mark.parametrize("inner", [top_k(0.1), random_k(0.1), top_k(0.1, inner=qsgd(8))], ids=repr)
def test_masking_accepts_a_sparsifier(inner):
    check_sparsifies("momentum_correction", inner)
    momentum_correction(inner)
