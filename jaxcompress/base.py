"""The core records: the result of a reduction, codecs, compressors, per-worker state and calls."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import optax
from jax.typing import ArrayLike
from optax import Updates

AxisName = str | tuple[str, ...]


class Reduced(NamedTuple):
    """The result of one reduction on one worker. Law: ``mean + pmean(residual) == pmean(updates)``.

    A compressor with an error memory stores the residual there and returns zeros.
    """

    mean: Updates  # identical on every worker
    residual: Updates  # per worker: what the mean lacks of its updates; NaN where not finite
    bits: ArrayLike  # size of the messages this worker sent; a Python int if always the same


class Codec(NamedTuple):
    """Encodes one array into a small message and back; knows nothing about the network."""

    encode: Callable[[jax.Array, Any], Any]  # (key, array or Sparse) -> message, a pytree of arrays
    decode: Callable[[Any, Any], Any]  # (message, like) -> array of that shape and dtype, or Sparse
    select: Callable[[jax.Array, jax.Array], Any] | None = None  # (key, x) -> Sparse, for encode
    chunk: int | None = None  # entries that can be encoded alone; None: needs the whole array
    entrywise: bool = False  # every entry, or every selected row, is encoded on its own


class Compressor(NamedTuple):
    """Averages updates over a mesh axis in few bits; pure functions of pytrees."""

    init: Callable[[jax.Array, Any], Any]  # (key, params) -> state
    reduce: Callable[..., Any]  # (key, updates, state, axis_name) -> (Reduced, state)
    message_bits: Callable[[Any], Any]  # params -> tree of int, from shapes alone
    codec: Codec | None = None  # None where compression and communication cannot be separated
    has_memory: bool = False  # keeps parts of updates between steps
    contracts: bool = True  # E|residual|^2 < |updates|^2, which error feedback needs
    sparsifies: bool = False  # sends some entries, or all, and leaves the others unchanged
    dense_transform: optax.GradientTransformation | None = None  # for averages that travel dense
    call: "Call | None" = None  # constructor and arguments; gives the repr

    def __repr__(self) -> str:
        return repr(self.call) if self.call else f"Compressor(reduce={self.reduce!r})"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PerWorker:
    """State that differs between workers; all other state is replicated.

    Inside a step, `value` holds one worker's arrays, ``(…)``. Outside, it holds those of all,
    ``(workers, …)``, sharded over the mesh axis: see `jaxcompress.init_state`.
    """

    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """A call of a constructor. Its `repr` is canonical: without arguments equal to a default."""

    constructor: Callable
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        texts, parameters = [], inspect.signature(self.constructor).parameters
        for name, value in self.arguments.items():
            parameter, default = parameters[name], parameters[name].default
            if parameter.kind is parameter.VAR_POSITIONAL:
                texts += map(notation_of, value)
            elif default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
                texts.append(notation_of(value))
            elif isinstance(value, int | float) and value == default:
                continue  # 1 and 1.0 are the same argument
            elif (text := notation_of(value)) != notation_of(default):
                texts.append(f"{name}={text}")
        return f"{constructor_name(self.constructor)}({', '.join(texts)})"


def parseable(constructor: Callable) -> Callable:
    """Records the call for `jaxcompress.parse`; define yours at the top level of a module."""
    signature = inspect.signature(constructor)

    @functools.wraps(constructor)
    def construct(*args, **kwargs):
        made = constructor(*args, **kwargs)
        record = "call" in getattr(made, "_fields", ())  # a Compressor or a Rule
        if not record and not callable(made):
            raise TypeError(f"what is parseable returns a compressor or a function; got {made!r}.")
        call = Call(construct, signature.bind(*args, **kwargs).arguments)
        if record:
            return made._replace(call=call)
        made.call = call
        return made

    construct.__dict__["parseable"] = True
    return construct


def constructor_name(constructor: Callable) -> str:
    """The name of `constructor` in a text: after its module, unless that is of jaxcompress."""
    module = f"{constructor.__module__}."
    return ("" if module.startswith("jaxcompress.") else module) + constructor.__name__


def notation_of(value: Any) -> str:
    """`value` as text: its call if a `parseable` constructor made it, else Python's `repr`."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{notation_of(k)}: {notation_of(v)}' for k, v in value.items())}}}"
    return repr(value.call if isinstance(getattr(value, "call", None), Call) else value)


def walk(value: Any) -> Iterator[Compressor]:
    """Yields every compressor in `value`: itself, then those in the arguments of its call."""
    if isinstance(value, Compressor):
        yield value
        value = value.call.arguments if value.call else {}
    parts = value.values() if isinstance(value, dict) else value
    for part in parts if isinstance(value, dict | tuple | list) else ():
        if isinstance(part, Compressor | dict | tuple | list):
            yield from walk(part)
