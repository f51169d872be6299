"""Checks of optimizers whose workers have parameters of their own."""

from typing import Any

import jax
import jax.numpy as jnp
from optax import Params

from jaxcompress.ops.argument_checks import check_integer
from jaxcompress.ops.trees import path_text
from jaxcompress.transform import CompressState


def check_link(name: str, link: Any, example: str) -> None:
    """ValueError unless `link`, an argument of this name, is an Optax transformation."""
    if not hasattr(link, "update"):
        raise ValueError(f"{name} is an Optax transformation, such as {example}; got {link!r}.")


def check_period(period: Any) -> None:
    """ValueError unless `period` is an integer of at least 1, or a function."""
    if not callable(period):
        check_integer("period", period, 1, "the number of inner steps between synchronisations")


def check_dtypes(params: Params) -> None:
    """ValueError for parameters in which small steps are lost."""
    for path, x in jax.tree_util.tree_leaves_with_path(params):
        if jnp.issubdtype(x.dtype, jnp.floating) and jnp.finfo(x.dtype).bits < 32:
            raise ValueError(
                f"the parameter {path_text(path)!r} is {x.dtype}, in which the drift of a period"
                " is lost to rounding. Keep parameters in float32, and cast them in the model."
            )


def check_call(name: str, params: Any, weight: Any) -> None:
    """ValueError if the optimizer `name` was called as by `make_train_step`.

    That gives no weight, and takes gradients at the parameters that all workers share.
    """
    if params is None or weight is None:
        raise ValueError(
            f"{name} takes gradients at each worker's own parameters: train by make_local_step. In"
            " a step of your own take them at worker_params(opt_state), and call"
            " update(grads, opt_state, params, weight=1.0)."
        )


def averages(state: Any) -> bool:
    """Whether a state has a `compress` in it."""
    return any(map(is_link, jax.tree.leaves(state, is_leaf=is_link)))


def is_link(node: Any) -> bool:
    """Whether `node` is the state of a `compress`."""
    return isinstance(node, CompressState)
