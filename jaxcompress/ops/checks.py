"""What constructors ask of their arguments, and the words in which they refuse."""

from typing import Any

from jaxcompress.base import Compressor


def check_integer(name: str, value: Any, least: int, meaning: str = "") -> None:
    """ValueError unless `value`, an argument of this name and meaning, is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {meaning + ', ' if meaning else ''}an integer of at least {least}; got {value!r}.")


def check_flag(name: str, value: Any) -> None:
    """ValueError unless `value`, an argument of this name, is a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is True or False; got {value!r}.")


def check_fraction(name: str, value: Any, meaning: str) -> None:
    """ValueError unless `value`, an argument of this name and meaning, is a number in (0, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"{name} is {meaning}, in (0, 1]; got {value!r}.")


def check_momentum(momentum: Any) -> None:
    """ValueError unless `momentum` is a number in [0, 1)."""
    if isinstance(momentum, bool) or not isinstance(momentum, int | float) or not 0 <= momentum < 1:
        raise ValueError(f"momentum is how much of the velocity is kept, in [0, 1); got {momentum!r}.")


def check_weight_decay(value: Any, mask: Any = None) -> None:
    """ValueError unless `value` is a number, at least 0 and finite, and `mask` can say which parameters decay."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"weight_decay is a factor of the parameters, at least 0 and finite; got {value!r}.")
    if isinstance(mask, str):
        raise ValueError(f"mask is a tree of bools, or a function of the parameters that gives one; got {mask!r}.")


def check_no_momentum(outer: str, inner: Compressor) -> None:
    """ValueError, in the name of what is around it, if `inner` has a momentum of its own."""
    if inner.otherwise is not None:
        raise ValueError(
            f"{inner!r} has a momentum, which belongs to the updates, and {outer} would give it something else. Put it "
            f"outside: momentum_correction({outer}(…))."
        )


def check_forgets(outer: str, inner: Compressor, why: str) -> None:
    """ValueError, in the name of what is around it, if `inner` carries something from step to step."""
    if inner.remembers:
        raise ValueError(
            f"{inner!r} carries what it did not send to the next step, and {outer} {why}. Put memories outside: "
            f"error_feedback({outer}(…))."
        )


def check_conserves(outer: str, inner: Compressor) -> None:
    """ValueError, in the name of what is around it, if `inner` declares that it does not keep the law."""
    if not inner.conserves:
        raise ValueError(
            f"{outer} needs to know what was sent, and {inner!r} gives an average that is none of it: there is nothing "
            f"to carry over. Use it by itself, or sign() in its place."
        )
