"""The optimizers of each figure."""

from collections.abc import Callable
from typing import Any

import jax
import optax

import jaxcompress

FALL = 300
RATE, MOMENTUM = 0.1, 0.9


def fall(step: Any) -> jax.Array:
    """A learning rate that falls by a factor of 100."""
    return optax.piecewise_constant_schedule(5 * RATE, {FALL: 0.01})(step)


def sgd(
    expression: str, rate: Any = RATE, momentum: float | None = None
) -> optax.GradientTransformation:
    """SGD after a compressor."""
    return optax.chain(
        jaxcompress.compress(jaxcompress.parse(expression)), optax.sgd(rate, momentum)
    )


def adam(expression: str) -> optax.GradientTransformation:
    """Adam after a compressor."""
    return optax.chain(jaxcompress.compress(jaxcompress.parse(expression)), optax.adam(1e-3))


def rescaled() -> optax.GradientTransformation:
    """SGD whose error memory follows the learning rate."""
    memory = jaxcompress.error_feedback(jaxcompress.top_k(0.005), learning_rate=fall)
    return optax.chain(jaxcompress.compress(memory), optax.sgd(fall))


# figure -> label -> (optimizer, whether the images of one step are NaN)
FIGURES: dict[str, dict[str, tuple[Callable[[], optax.GradientTransformation], bool]]] = {
    "memory": {
        "dense()": (lambda: sgd("dense()"), False),
        "top_k(0.005)": (lambda: sgd("top_k(0.005)"), False),
        "error_feedback(top_k(0.005))": (lambda: sgd("error_feedback(top_k(0.005))"), False),
        "ef21(top_k(0.005))": (lambda: sgd("ef21(top_k(0.005))"), False),
    },
    "momentum": {
        "dense(), momentum after": (lambda: sgd("dense()", RATE / 10, MOMENTUM), False),
        "error_feedback, momentum after": (
            lambda: sgd("error_feedback(top_k(0.005))", RATE / 10, MOMENTUM),
            False,
        ),
        "momentum_correction": (lambda: sgd("momentum_correction(top_k(0.005))", RATE / 10), False),
        "momentum_correction, no masking": (
            lambda: sgd("momentum_correction(top_k(0.005), masking=False)", RATE / 10),
            False,
        ),
        "ef21_sgdm": (lambda: sgd("ef21_sgdm(top_k(0.005))"), False),
    },
    "bad step": {
        "dense(), all steps good": (lambda: adam("dense()"), False),
        "dense()": (lambda: adam("dense()"), True),
        "apply_if_all_finite, dense()": (
            lambda: jaxcompress.apply_if_all_finite(adam("dense()")),
            True,
        ),
        "apply_if_all_finite, error_feedback(top_k(0.01))": (
            lambda: jaxcompress.apply_if_all_finite(adam("error_feedback(top_k(0.01))")),
            True,
        ),
    },
    "rate": {
        "dense()": (lambda: sgd("dense()", fall), False),
        "error_feedback(top_k(0.005))": (lambda: sgd("error_feedback(top_k(0.005))", fall), False),
        "error_feedback(top_k(0.005), learning_rate=…)": (rescaled, False),
    },
}
