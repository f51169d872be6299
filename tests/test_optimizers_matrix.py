"""Every kind of optimizer after every kind of compressor learns the digits as its
dense twin does.
"""

import functools

import jax
import optax
import pytest
from digits_helpers import accuracy, learn

from jaxcompress import compress, dense, parse

STEPS = 300


def falling(rate: float) -> optax.Schedule:
    """A learning rate that ends at zero, so that what is compared has come to rest."""
    return optax.cosine_decay_schedule(rate, STEPS)


# Rates at which the dense twin comes to rest within these steps; the compressed runs take them as
# they are.
OPTIMIZERS = {
    "sgd": lambda: optax.sgd(falling(0.5)),
    "momentum": lambda: optax.sgd(falling(0.1), momentum=0.9),
    "nesterov": lambda: optax.sgd(falling(0.1), momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(falling(0.015)),
    "adamw": lambda: optax.adamw(falling(0.015), weight_decay=0.01),
    "rmsprop": lambda: optax.rmsprop(falling(0.01)),
    # Of these small arrays it would factor none.
    "adafactor": lambda: optax.adafactor(falling(0.05), min_dim_size_to_factor=10),
    "lamb": lambda: optax.lamb(falling(0.02)),
    "lion": lambda: optax.lion(falling(0.003)),
    "muon": lambda: optax.contrib.muon(falling(0.02)),
    "schedule-free sgd": lambda: optax.contrib.schedule_free_sgd(1.0, warmup_steps=STEPS // 10),
    "schedule-free adamw": lambda: optax.contrib.schedule_free_adamw(
        0.01, warmup_steps=STEPS // 10
    ),
}
COMPRESSORS = [
    "error_feedback(top_k(0.1))",
    "error_feedback(block_top_k(0.1, block=64))",
    "error_feedback(power_sgd(2))",
    "qsgd(8)",
]
# Of the 360 images of the test.
POINTS = 1.0


def trained(name: str, compressor) -> float:
    """The accuracy at the end."""
    params, state = learn(optax.chain(compress(compressor), OPTIMIZERS[name]()), STEPS)
    averages = [
        node for node in jax.tree.leaves(state, is_leaf=is_schedule_free) if is_schedule_free(node)
    ]
    return accuracy(
        optax.contrib.schedule_free_eval_params(averages[0], params) if averages else params
    )


def is_schedule_free(node) -> bool:
    return isinstance(node, optax.contrib.ScheduleFreeState)


@functools.cache
def of_dense(name: str) -> float:
    return trained(name, dense())


def assert_learns_as_dense(name: str, expression: str) -> None:
    assert of_dense(name) >= 95
    assert trained(name, parse(expression)) >= of_dense(name) - POINTS


# In each run of the tests `adam` follows every compressor, and two more optimizers, which
# tests/test_optax.py does not train, follow one each. The other pairs are among the slow tests.
FAST = ["momentum", "schedule-free sgd"]


def marks(name: str, compressor: int) -> list[pytest.MarkDecorator]:
    always = name == "adam" or (name in FAST and FAST.index(name) == compressor)
    # One process takes all runs of an optimizer, so that its dense run is made once.
    return [pytest.mark.xdist_group(name), *([] if always else [pytest.mark.slow])]


every_pair = pytest.mark.parametrize(
    ("name", "expression"),
    [
        pytest.param(name, expression, marks=marks(name, compressor))
        for name in OPTIMIZERS
        for compressor, expression in enumerate(COMPRESSORS)
    ],
)


@every_pair
def test_every_optimizer_learns_as_its_dense_twin_after_every_compressor(name, expression):
    assert_learns_as_dense(name, expression)
