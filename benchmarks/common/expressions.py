"""The expressions that benchmarks measure: every public scheme once, as one would train with it.

`validate` checks them, and `scheme_survey` trains with them. A scheme that is not in `TRAINED` is
trained inside `error_feedback`, with the arguments of its docstring's example.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import jaxcompress

DENSE = "dense()"
MIN_COMPRESSION_RATE = 1.9  # int_sum(16) has 1.99, and would be sent dense by the default of 2

# Unbiased schemes, and schemes with their own error memory, need no `error_feedback`. Sparsifiers
# keep about 5 %: with 1 %, most entries would be sent less than twice in 200 steps. Those that
# choose entries at random keep 20 %: large entries wait as long as all others, and with 5 % and
# momentum the accuracy stayed at 35 %.
TRAINED = {
    "dense": DENSE,
    # sparsifiers
    "top_k": "error_feedback(top_k(0.05))",
    "block_top_k": "error_feedback(block_top_k(0.05))",
    "block_max": "error_feedback(block_max(block=16))",
    "global_top_k": "error_feedback(global_top_k(0.05))",
    "sampled_threshold": "error_feedback(sampled_threshold(0.05))",
    "random_k": "error_feedback(random_k(0.2))",
    "bernoulli": "error_feedback(bernoulli(0.2))",
    "importance_sampled": "importance_sampled(0.1)",
    "block_sparse": "error_feedback(block_sparse(0.05))",
    "row_top_k": "error_feedback(row_top_k(0.05))",
    # 128 is the width of a hidden layer; each unit counts as a head.
    "head_top_k": "error_feedback(head_top_k(0.05, 128))",
    "shared_top_k": "error_feedback(shared_top_k(0.05))",
    "dct": "error_feedback(dct(block_top_k(0.05)))",
    "arc_top_k": "error_feedback(arc_top_k(0.05, block=256))",
    # quantisers
    "qsgd": "qsgd(4)",
    "nuqsgd": "nuqsgd(4)",
    "terngrad": "terngrad()",
    "natural": "natural()",
    "int4": "error_feedback(int4())",
    "int2": "error_feedback(int2())",
    "float8": "error_feedback(float8())",
    "sign_majority": "sign_majority()",
    "rotated": "rotated(qsgd(4))",
    "lloyd_max": "error_feedback(lloyd_max(4))",
    "eden": "error_feedback(eden(2))",
    # low rank
    "acp_sgd": "error_feedback(acp_sgd(2))",
    "batched_power_sgd": "error_feedback(batched_power_sgd(2))",
    # memories
    "error_feedback": "error_feedback(block_top_k(0.05, inner=qsgd(6)))",
    "momentum_correction": "momentum_correction(top_k(0.05))",
    "ef21": "ef21(top_k(0.2))",
    "ef21_sgdm": "ef21_sgdm(top_k(0.2), momentum=0.5)",
    "control_variate": "control_variate(qsgd(4), 0.25)",
    # collectives
    "one_phase": "one_phase(qsgd(8))",
    "two_phase": "two_phase(qsgd(4))",
    "hierarchical": "error_feedback(hierarchical(dense(), power_sgd(1)))",
    "whole_model": "error_feedback(whole_model(block_top_k(0.05)))",
    # routing
    "partition": (
        "error_feedback(partition({'matrix': power_sgd(1), 'rest': top_k(0.1)}, by_shape()))"
    ),
    "switch": "error_feedback(switch(warmup(50), dense(), top_k(0.05)))",
    "adaptive": "error_feedback(adaptive(accordion(every=50), top_k(0.1), top_k(0.02)))",
    "dgc_warmup": "error_feedback(dgc_warmup(0.05, warmup_steps=50))",
    "monitor": "monitor(error_feedback(top_k(0.05)))",
}


def public_schemes(package: str = "jaxcompress") -> list[str]:
    """The public constructors of a `Compressor` that are defined below `package`.

    They keep the order of `jaxcompress.__all__`; those of `jaxcompress.contrib` follow.
    """
    made: dict[str, Callable[..., Any]] = {
        name: one
        for module in (jaxcompress, jaxcompress.contrib)
        for name in module.__all__
        if getattr(one := getattr(module, name), "parseable", False)
        and inspect.signature(one).return_annotation is jaxcompress.Compressor
    }
    return [name for name, one in made.items() if f"{one.__module__}.".startswith(f"{package}.")]


def example(name: str) -> str:
    """The example expression in the docstring of a scheme."""
    constructor = getattr(jaxcompress, name, None) or getattr(jaxcompress.contrib, name)
    _, _, text = (inspect.getdoc(constructor) or "").partition("Example:")
    shown = re.findall(rf"^\s*({name}\(.*\))$", text, flags=re.MULTILINE)
    if not shown:
        raise ValueError(
            f"the docstring of {name} has no example of its notation, {name}(…); add one."
        )
    return shown[0]


SCHEMES = {
    name: TRAINED.get(name) or f"error_feedback({example(name)})" for name in public_schemes()
}

# Compared with many workers: dense, low rank, and three codecs in one phase and in two.
AT_SCALE = [
    DENSE,
    "error_feedback(power_sgd(2))",
    "error_feedback(one_phase(block_top_k(0.01, inner=qsgd(6))))",
    "error_feedback(two_phase(block_top_k(0.01, inner=qsgd(6))))",
    "error_feedback(one_phase(qsgd(4)))",
    "error_feedback(two_phase(qsgd(4)))",
    "error_feedback(one_phase(sign()))",
    "error_feedback(two_phase(sign()))",
]
