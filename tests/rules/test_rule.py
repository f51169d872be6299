"""What is a rule, and what is refused."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxcompress import Rule, accordion, adaptive, dense, parse, top_k
from jaxcompress.rules.rule import check_rule


def constant(level=1, **changes) -> Rule:
    """A rule that always asks for one level."""
    return Rule(
        init=lambda: jnp.int32(level),
        observe=lambda state, statistics, count: state,
        index=lambda state: state,
    )._replace(**changes)


def test_a_rule_of_ones_own_is_a_rule():
    check_rule(constant())
    check_rule(constant(needs=("mean", "update", "residual", "sent", "loss", "bandwidth")))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (accordion, "adaptive begins with a rule.*call it"),
        ("accordion(every=3)", "adaptive begins with a rule.*got 'accordion"),
        (constant(needs=("norm",)), r"needs \['norm'\], and a step measures mean, update"),
        (constant(observe=lambda state, *_: state + 1.0), "of other types"),
        (constant(observe=lambda state, *_: {"level": state}), "of other types"),
        (constant(observe=lambda state, *_: state + lax.axis_index("data")), "reads a mesh axis"),
        (constant(observe=lambda state: state), "fails, with all statistics that it needs: TypeEr"),
        (constant(observe=lambda state, seen, _: seen.loss + 1), "fails, with all statistics"),
        (constant(init=lambda: "weak"), "fails, with all statistics"),
        (constant(index=lambda state: state * 1.0), "a level is one integer"),
        (constant(index=lambda state: jnp.zeros(2, jnp.int32)), "a level is one integer"),
    ],
)
def test_what_is_no_rule_is_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        adaptive(rule, dense(), top_k(0.1))


def test_a_state_may_begin_as_numbers_of_python():
    compressor = adaptive(constant(init=lambda: 1), dense(), top_k(0.1))
    assert compressor.init(jax.random.key(0), {"w": jnp.zeros(9)}).rule.dtype == jnp.int32


def test_a_rule_stands_in_a_text_and_is_no_compressor():
    text = "error_feedback(adaptive(accordion(0.3, every=5, drops=(7, 9)), dense(), top_k(0.1)))"
    assert repr(parse(text)) == text.replace("accordion(0.3", "accordion(threshold=0.3")
    with pytest.raises(ValueError, match="not a compressor"):
        parse("accordion(every=5)")
