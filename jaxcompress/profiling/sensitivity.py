"""A level of compression for each array, chosen from measured errors within a budget of bytes."""

import glob
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcompress.base import Compressor, notation_of
from jaxcompress.collectives.finiteness import all_finite
from jaxcompress.distributed.loss_function import with_extra
from jaxcompress.feedback.memories import like_memory
from jaxcompress.ops.argument_checks import check_fraction, check_stateless
from jaxcompress.ops.trees import array_bits, energy, path_text
from jaxcompress.routing.labels import by_path
from jaxcompress.routing.partition import partition

# Sizes are rounded up to a ten-thousandth of the budget; with many arrays to less, so that all
# together grow by at most a tenth of it.
BINS = 10_000
BINS_OF_AN_ARRAY = 10
# As `compress` by default: an array travels dense unless its message is so many times smaller.
MIN_COMPRESSION_RATE = 2.0


def sensitivity(
    params: Any,
    loss_fn: Callable,
    batches: Iterable[Any],
    budget: float,
    levels: Sequence[Compressor],
) -> Compressor:
    """Chooses one of `levels` for each array, so that the error is least for `budget` bytes.

    For each array l and level c it measures ``E[l, c] = sum over batches of |g_l - C_c(g_l)|^2``,
    where g is the gradient of `loss_fn` at `params`. Then it minimises ``sum_l E[l, c_l]`` over all
    choices whose messages take at most `budget` of the dense gradient's bits, by dynamic
    programming over bits in 10,000 bins. An array that a level makes less than twice smaller counts
    as sent dense, since `compress` sends it so.

    It runs on one device, and communicates nothing. On several processes call it with the same
    arguments, or on one, and pass the text of the result on. Choose anew after some thousand
    steps: gradients change. The memory of an `error_feedback` around it stays.

    Sizes are those under `error_feedback`, which sends float32 also for bfloat16 parameters.

    Compare it with `global_top_k` at as many bytes, which has the least error of all selections.

    Args:
      params: The parameters, all floating.
      loss_fn: ``(params, batch) -> loss`` or ``(loss, metrics)``.
      batches: Batches that `loss_fn` takes, at least one; the error of several is more reliable.
      budget: The largest size of the messages, as a fraction of the dense gradient's, in (0, 1].
      levels: Compressors without memory, such as ``[top_k(0.001), top_k(0.01), top_k(0.1)]``.

    Returns:
      A `partition` of the levels by the paths of arrays, which can be written as text.

    Raises:
      ValueError: if there is no level, no batch or no array, a level is no compressor or has a
        memory, a parameter is not floating, two arrays have one path, a gradient is not finite, or
        the smallest messages exceed the budget.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxcompress.compressors.sparsifiers.top_k import top_k
      >>> params = {"a": jnp.zeros(1000), "b": jnp.zeros(1000)}
      >>> loss_fn = lambda params, x: params["a"][0] + (params["b"] * x).sum()
      >>> sensitivity(params, loss_fn, [jnp.arange(1000.0)], 0.2, [top_k(0.01), top_k(0.2)])
      partition({'top_k(0.01)': top_k(0.01), 'top_k(0.2)': top_k(0.2)}, \
by_path({'a': 'top_k(0.01)', 'b': 'top_k(0.2)'}))

    References:
      Markov et al., `L-GreCo: Layerwise-Adaptive Gradient Compression
      <https://arxiv.org/abs/2210.17357>`_, 2022
    """
    check_fraction("budget", budget, "the size of the messages as a fraction of the gradient's")
    if isinstance(levels, Compressor) or not isinstance(levels, list | tuple) or not levels:
        raise ValueError("sensitivity chooses among levels, as in [top_k(0.01), top_k(0.1)].")
    for one in levels:
        check_stateless("sensitivity", one)
    _check_arrays(params)
    gradients = list(_gradients(params, loss_fn, batches))
    if not gradients:
        raise ValueError("sensitivity measures errors on batches, and got none.")
    if not all(bool(all_finite(one)) for one in gradients):
        raise ValueError("a gradient of these batches is not finite, so it has no error.")
    sizes = np.array([_sizes(one, params) for one in levels]).T
    errors = np.array([_errors(one, params, gradients) for one in levels]).T
    dense = np.array([array_bits(x) for x in jax.tree.leaves(params)])
    travels_dense = sizes * MIN_COMPRESSION_RATE > dense[:, None]
    sizes = np.where(travels_dense, dense[:, None], sizes)
    errors = np.where(travels_dense, 0.0, errors)
    chosen = allocate(errors, sizes, budget * float(dense.sum()))
    names = [notation_of(one) for one in levels]
    paths = [
        glob.escape(path_text(path)) for path, _ in jax.tree_util.tree_leaves_with_path(params)
    ]
    used = {names[level]: levels[level] for level in sorted(set(chosen))}
    labels = {path: names[level] for path, level in zip(paths, chosen, strict=True)}
    return partition(used, by_path(labels))


def allocate(errors: np.ndarray, sizes: np.ndarray, budget: float) -> list[int]:
    """The level of each array with the least sum of errors among those of at most `budget`.

    Args:
      errors: (arrays, levels).
      sizes: (arrays, levels), in the unit of `budget`; rounded up to a `BINS`-th of it, or for many
        arrays to a smaller part.
      budget: The largest sum of sizes.

    Raises:
      ValueError: if the smallest sizes exceed the budget.
    """
    if (smallest := sizes.min(1).sum()) > budget:
        raise ValueError(
            f"the smallest messages take {smallest:,.0f} bits, and the budget is {budget:,.0f}:"
            " raise it, or give levels that compress more."
        )
    bins = max(BINS, BINS_OF_AN_ARRAY * len(sizes))
    units = np.ceil(sizes / (budget / bins) - 1e-9).astype(int)
    # least[b]: the least error of the arrays so far in at most b bins.
    least = np.zeros(bins + 1)
    choices = []
    for error, unit in zip(errors, units, strict=True):
        options = np.full((len(error), bins + 1), np.inf)
        for level, (e, u) in enumerate(zip(error, unit, strict=True)):
            if u <= bins:
                options[level, u:] = least[: bins + 1 - u] + e
        choices.append(options.argmin(0).astype(np.min_scalar_type(len(error))))
        least = options.min(0)
    if not np.isfinite(least[-1]):  # only the smallest ones fit, and not when rounded up
        return [int(level) for level in sizes.argmin(1)]
    left, found = bins, []
    for choice, unit in zip(reversed(choices), reversed(units), strict=True):
        found.append(int(choice[left]))
        left -= unit[choice[left]]
    return found[::-1]


def _gradients(params: Any, loss_fn: Callable, batches: Iterable[Any]) -> Iterable[Any]:
    loss_fn = with_extra(loss_fn)
    gradient = jax.jit(jax.grad(lambda params, batch: loss_fn(params, {}, batch)[0]))
    for batch in batches:
        found = gradient(params, batch)
        yield jax.tree.map(lambda x, like: x.astype(like.dtype), found, like_memory(params))


def _sizes(compressor: Compressor, params: Any) -> list[int]:
    """Bits of the message of each array."""
    return jax.tree.leaves(compressor.message_bits(like_memory(params)))


def _check_arrays(params: Any) -> None:
    paths = [path_text(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    if not paths or len(set(paths)) < len(paths):
        raise ValueError(
            "sensitivity labels arrays by their paths, of which each has one; got"
            f" {paths or 'no array'}."
        )
    for path, x in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(
                f"sensitivity takes floating parameters; {path_text(path)!r} is {x.dtype}."
            )


def _errors(compressor: Compressor, params: Any, gradients: list[Any]) -> np.ndarray:
    """The energy of the residual of each array, added over the gradients."""

    @jax.jit
    def one(key, gradient, state):
        reduced, state = jax.vmap(
            lambda x, state: compressor.reduce(key, x, state, "data"),
            (0, None),
            axis_name="data",
        )(jax.tree.map(lambda x: x[None], gradient), state)
        state = jax.tree.map(lambda x: x[0], state)
        return [energy(x) for x in jax.tree.leaves(reduced.residual)], state

    state, total = compressor.init(jax.random.key(0), like_memory(params)), np.zeros(0)
    for step, gradient in enumerate(gradients):
        errors, state = one(jax.random.key(step), gradient, state)
        errors = np.asarray(jax.device_get(errors), np.float64)
        total = errors if step == 0 else total + errors
    return total
