"""Checks of constructors' arguments, and their error messages."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxcompress.base import Compressor


def shown(value: Any) -> str:
    """`value` for an error message; for a traced value, why it cannot be an argument here."""
    if isinstance(value, Tracer):
        return (
            "a traced value, but arguments of compressors are fixed when a step is compiled: keep"
            " it out of jit and optax.inject_hyperparams"
        )
    array = isinstance(value, jax.Array | np.generic | np.ndarray)
    return f"{value!r}, an array: give a Python number" if array else repr(value)


def is_number(value: Any) -> bool:
    """Whether `value` is an int or a float, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


# Steps, and most sizes, are int32 in a step.
_LARGEST = 2**31 - 1
# For numbers that stay in Python.
UNBOUNDED = 2**63 - 1


def check_integer(
    name: str, value: Any, least: int, meaning: str = "", most: int = _LARGEST
) -> None:
    """ValueError unless `value`, an argument of this name and meaning, is an integer in range."""
    integer = isinstance(value, int) and not isinstance(value, bool)
    if not integer or not least <= value <= most:
        what = f"{meaning}, " if meaning else ""
        too_large = integer and value > most
        one_sided = most >= _LARGEST and not too_large
        bounds = f"of at least {least}" if one_sided else f"from {least} to {most}"
        raise ValueError(f"{name} is {what}an integer {bounds}; got {shown(value)}.")


def check_flag(name: str, value: Any) -> None:
    """ValueError unless `value`, an argument of this name, is a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is True or False; got {shown(value)}.")


def check_positive(name: str, value: Any, meaning: str) -> None:
    """ValueError unless `value`, an argument of this name and meaning, is a number above 0."""
    if not is_number(value) or not value > 0:
        raise ValueError(f"{name} is {meaning}, above 0; got {shown(value)}.")


def check_fraction(name: str, value: Any, meaning: str) -> None:
    """ValueError unless `value`, an argument of this name and meaning, is a number in (0, 1]."""
    if not is_number(value) or not 0 < value <= 1:
        raise ValueError(f"{name} is {meaning}, in (0, 1]; got {shown(value)}.")


def check_momentum(momentum: Any) -> None:
    """ValueError unless `momentum` is a number in [0, 1)."""
    if not is_number(momentum) or not 0 <= momentum < 1:
        raise ValueError(
            f"momentum is how much of the velocity is kept, in [0, 1); got {shown(momentum)}."
        )


def check_weight_decay(value: Any, mask: Any = None) -> None:
    """ValueError unless `value` is finite and at least 0, and `mask` can select parameters."""
    if not is_number(value) or not 0 <= value < float("inf"):
        raise ValueError(
            "weight_decay is a factor of the parameters, at least 0 and finite; got"
            f" {shown(value)}."
        )
    if isinstance(mask, str):
        raise ValueError(
            "mask is a tree of bools, or a function of the parameters that returns one; got"
            f" {mask!r}."
        )


def check_link(name: str, link: Any, example: str) -> None:
    """ValueError unless `link`, an argument of this name, is an Optax transformation."""
    # A dict of parameters has `update` too, and a compressor `init`.
    if not (hasattr(link, "init") and hasattr(link, "update")):
        # The parameters, by mistake, would be a long message.
        got = f"a {type(link).__name__}"
        if isinstance(link, Compressor):
            got = f"{link!r}; write compress({link!r})"
        raise ValueError(f"{name} is an Optax transformation, such as {example}; got {got}.")


def check_stateless(outer: str, inner: Any) -> None:
    """ValueError in the name of `outer` unless `inner` is a compressor without a memory.

    A memory inside would hold images or differences instead of updates, or hold the residual twice.
    """
    if not isinstance(inner, Compressor):
        hint = "; call it, with its arguments" if callable(inner) else ""
        raise ValueError(f"{outer} takes a compressor, such as top_k(0.01); got {inner!r}{hint}.")
    if inner.has_memory:
        raise ValueError(
            f"{outer} takes a compressor without a memory; got {inner!r}. Put one memory outside,"
            f" as in error_feedback({'…' if outer in MEMORIES else f'{outer}(…)'})."
        )


MEMORIES = ("error_feedback", "momentum_correction", "ef21", "ef21_sgdm", "control_variate")


def check_contracts(outer: str, inner: Compressor) -> None:
    """ValueError in the name of `outer` if the noise of `inner` would make its memory diverge."""
    if not inner.contracts:
        raise ValueError(
            f"{outer} is unstable around {inner!r}, whose error is as large as the update. Use"
            f" control_variate({inner!r}, 0.1), or a compressor that contracts, such as int4() or"
            " top_k(0.01)."
        )


def check_sparsifies(outer: str, inner: Compressor) -> None:
    """ValueError in the name of `outer` if `inner` sends a part of every entry."""
    if not inner.sparsifies:
        raise ValueError(
            f"{outer} with masking resets the velocity of every entry sent, and {inner!r} sends a"
            f" part of all: no momentum would be left. Write {outer}({inner!r}, masking=False)."
        )


def check_schedule(text: str, schedule: Any, kind: Any, advice: str = "") -> None:
    """ValueError that begins with `text` unless `schedule` maps a count of steps to one number.

    The number is of `kind`, ``jnp.integer`` or ``jnp.floating``. An index may read a mesh axis,
    which is not bound here; then it is not checked.
    """
    cause, found = None, ""
    if callable(schedule) and not isinstance(schedule, Compressor):
        try:
            number = jax.eval_shape(
                lambda count: jnp.asarray(schedule(count)), jax.ShapeDtypeStruct((), jnp.int32)
            )
        except NameError:
            if kind is not jnp.integer:
                raise
            return
        except TypeError as error:
            cause, why = error, str(error).partition("\n")[0]
            traced = isinstance(error, jax.errors.ConcretizationTypeError)
            where = " inside jit, where jnp.where replaces if" if traced else ""
            found = f", which fails for a count{where}: {why}"
        else:
            if number.shape == () and jnp.issubdtype(number.dtype, kind):
                return
            found = f", which gives {number.dtype}{list(number.shape)}"
    raise ValueError(f"{text}; got {schedule!r}{found.rstrip('.')}.{advice}") from cause
