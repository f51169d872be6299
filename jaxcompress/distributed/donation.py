"""Jitted steps, which may reuse the memory of their arguments, and refuse arrays that are gone."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer


class JittedStep:
    """A jitted function, which may donate its first three arguments.

    Given an array whose memory an earlier call has reused, it raises a ValueError. JAX alone may
    crash then, on several CPU devices. All attributes, such as `lower`, are those of the jitted
    function.
    """

    def __init__(self, function: Callable, donate: bool, **options: Any):
        """`function` takes what is donated first; `options` are those of `jax.jit`."""
        self._jitted = jax.jit(function, donate_argnums=(0, 1, 2) if donate else (), **options)
        functools.update_wrapper(self, function)

    def __call__(self, *args, **kwargs):
        """Calls the jitted function, or raises a ValueError before JAX sees the arguments."""
        for x in jax.tree.leaves((args, kwargs)):
            # Faster than isinstance(x, jax.Array), and NumPy arrays have no such method.
            if hasattr(x, "is_deleted") and not isinstance(x, Tracer) and x.is_deleted():
                raise ValueError(
                    f"an array that the step was given is gone, {x.dtype}{list(x.shape)}: an"
                    " earlier step has reused its memory. Go on with what that step returned, as in"
                    " params, opt_state, extra, metrics = step(params, opt_state, extra, batch); or"
                    " make the step with donate=False."
                )
        return self._jitted(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_jitted":  # as while it is copied
            raise AttributeError(name)
        return getattr(self._jitted, name)
