"""The loss functions that the training step takes, and what it adds to them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxcompress.ops.trees import path_text

# Metrics that the step adds itself.
RESERVED = {"loss", "applied"}
LOSS_FUNCTION = (
    "a training step takes a loss function (params, extra, batch) -> (loss, (extra, metrics)),"
    " where extra and metrics may be {}, or (params, batch) -> loss or (loss, metrics)"
)


def with_extra(loss_fn: Callable) -> Callable:
    """`loss_fn` as a function of three arguments; ValueError if it takes neither three nor two."""
    try:
        signature = inspect.signature(loss_fn)
    except ValueError:
        return loss_fn  # some callables have no signature
    named = [
        x for x in signature.parameters.values() if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)
    ]
    required = [x for x in named if x.default is x.empty]
    if _takes(signature, 3) and len(required) != 2:
        return loss_fn
    if _takes(signature, 2):

        def adapted(params, extra, batch):
            found = loss_fn(params, batch)
            loss, metrics = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
            return loss, (extra, metrics)

        return adapted
    raise ValueError(f"{LOSS_FUNCTION}; this one takes {signature}.")


def _takes(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def checked(loss_fn: Callable) -> Callable:
    """`loss_fn`, with a ValueError if it returns another structure, or another kind of `extra`."""

    def run(params, extra, batch):
        found = loss_fn(params, extra, batch)
        match found:
            case (loss, (new_extra, Mapping() as metrics)) if not RESERVED & metrics.keys():
                if not _is_scalar(loss):
                    raise ValueError(
                        f"{LOSS_FUNCTION}; this one's loss is no scalar of floats: {_types(loss)}."
                    )
                _check_same_types(new_extra, extra)
                return found
            case (_, (_, Mapping() as metrics)):
                taken = sorted(RESERVED & metrics.keys())[0]
                raise ValueError(
                    f"the loss function gives a metric {taken!r}, which is the step's own;"
                    " rename it."
                )
        raise ValueError(f"{LOSS_FUNCTION}; this one gave {_types(found)}.")

    return run


def _check_same_types(new: Any, old: Any) -> None:
    """ValueError if the loss function returned an `extra` of other names, shapes or dtypes."""
    types = [
        {path_text(path): f"{jnp.result_type(x)}{list(jnp.shape(x))}" for path, x in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, (new, old))
    ]
    for path in dict.fromkeys([*types[0], *types[1]]):
        after, before = (one.get(path, "nothing") for one in types)
        if after != before:
            raise ValueError(
                f"the loss function was given {before} as extra at {path!r}, and returned {after}."
                " What it returns is the extra of the next step, of the same kind: begin with an"
                " extra like that, or cast it back."
            )


def _types(tree: Any) -> Any:
    """The tree with the type of each leaf, for an error: a traced array shows no shape."""
    return jax.tree.map(
        lambda x: str(jax.typeof(x)) if isinstance(x, jax.Array) else type(x).__name__, tree
    )


def _is_scalar(x: Any) -> bool:
    return isinstance(x, jax.Array) and x.shape == () and jnp.issubdtype(x.dtype, jnp.floating)


def scaled(loss_fn: Callable, scale: jax.Array | None) -> Callable:
    """The loss times `scale`, to be differentiated; the unscaled loss is a metric."""

    def run(*args):
        loss, (extra, metrics) = loss_fn(*args)
        return loss if scale is None else loss * scale.astype(loss.dtype), (
            extra,
            {"loss": loss, **metrics},
        )

    return run
