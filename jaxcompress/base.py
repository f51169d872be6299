"""What everything here is made of: a reduction, a codec, a compressor, and state that belongs to one worker."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from optax import Updates

AxisName = str | tuple[str, ...]


class Reduced(NamedTuple):
    """What one round of communication leaves on one worker.

    The law that every compressor keeps: ``mean == pmean(sent)``. A memory that stores ``x - sent`` therefore loses
    nothing: ``mean + pmean(x - sent) == pmean(x)``. A scheme that can make ``x - sent`` in fewer passes over memory
    than a subtraction gives it as `rest`; what nobody uses, the compiler leaves out.
    """

    mean: Updates  # average over the workers: the same on every one of them
    sent: Updates  # this worker's part of it
    bits: ArrayLike  # size of this worker's messages; a Python int wherever it does not depend on the step
    rest: Updates | None = None  # updates - sent, and so not finite where one is not; None leaves it to `rest_of`
    squared_norm: ArrayLike | None = (
        None  # |mean|^2 where it is known without a pass over it, as of orthonormal factors
    )

    def energy(self) -> ArrayLike:
        """|mean|^2 over all arrays, in float32."""
        if self.squared_norm is not None:
            return self.squared_norm
        squares = [jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(self.mean)]
        return sum(squares, jnp.float32(0))

    def rest_of(self, updates: Updates) -> Updates:
        """What of `updates` was not sent."""
        return jax.tree.map(jnp.subtract, updates, self.sent) if self.rest is None else self.rest


class Codec(NamedTuple):
    """How one array becomes a small message and back; knows no network.

    `piece` says that an array may be cut into pieces of so many entries that are encoded each on its own: then the
    worker that owns a shard of the average can compress it again. Where the whole array must be seen it is None.
    """

    encode: Callable[[jax.Array, jax.Array], Any]  # (key, x) -> message, a pytree of small arrays
    decode: Callable[[Any, Any], jax.Array]  # (message, like) -> array of the shape and dtype of `like`
    piece: int | None = None  # entries that make a message of their own
    stages: "Stages | None" = None  # the same in two steps, for a codec that sends few entries
    encode_part: Callable[[jax.Array, jax.Array, jax.Array], Any] | None = None  # see `encode_first`


def encode_first(codec: Codec, key: jax.Array, x: jax.Array, count: jax.Array) -> Any:
    """The message of an array whose entries from `count` on are filling: zeros, which are nobody's.

    ``codec.encode_part(key, x, count)`` for a codec to which zeros are entries like others; None where they do no harm.
    """
    return codec.encode_part(key, x, count) if codec.encode_part else codec.encode(key, x)


class Stages(NamedTuple):
    """A codec in two steps: a few entries are picked from an array, and these become its message.

    Only the first touches the whole array, so only this is done array by array; the second is done at once for all
    arrays of one shape. ``encode == make(make_key, pick(pick_key, x), like)`` with the two halves of its key, and
    ``decode == put(read(message, like), like, 1)``.
    """

    pick: Callable[[jax.Array, jax.Array], Any]  # (key, x) -> picked, a pytree of small arrays
    make: Callable[[jax.Array, Any, Any], Any]  # (key, picked, like) -> message
    read: Callable[[Any, Any], Any]  # (message, like) -> picked, as it arrives
    put: Callable[[Any, Any, float], jax.Array]  # (picked, like, weight) -> weight times the array
    add: Callable[[jax.Array, Any, float], jax.Array]  # (total, picked, weight) -> total + put(picked, total, weight)
    rest: Callable[[jax.Array, Any], jax.Array]  # (x, picked) -> x - put(picked, x, 1)


def staged(stages: Stages, piece: int | None) -> Codec:
    """The codec that does both steps for one array."""

    def encode(key, x):
        pick_key, make_key = jax.random.split(key)
        return stages.make(make_key, stages.pick(pick_key, x), x)

    def decode(message, like):
        return stages.put(stages.read(message, like), like, 1)

    return Codec(encode, decode, piece, stages)


def stages_of(codec: Codec) -> Stages:
    """A codec's two steps; where it has only one, it picks everything."""
    return codec.stages or Stages(
        pick=lambda key, x: x,
        make=lambda key, x, like: codec.encode(key, x),
        read=codec.decode,
        put=lambda x, like, weight: weight * x.astype(like.dtype),
        add=lambda total, x, weight: total + weight * x.astype(total.dtype),
        rest=jnp.subtract,
    )


class Compressor(NamedTuple):
    """Averages updates over the workers of a mesh axis, in few bits.

    ``init(key, params) -> state`` and ``reduce(key, updates, state, axis_name) -> (Reduced, state)`` are pure functions
    of trees; `reduce` runs where the axis exists. ``message_bits(params)`` gives the size of each array's message, a
    tree of ints. `codec` makes and reads the message of one array, for use as an `inner`; None where compressing and
    sending are one act. `remembers` says whether it carries something of the updates from step to step, itself or
    inside; `conserves` whether it keeps the law of `Reduced`, which all but a few declared exceptions do. `otherwise`
    averages, in `compress`, the arrays that are not worth compressing, where that is more than their plain mean: a
    local momentum must be theirs too. `expression` is the text that `jaxcompress.parse` reads back, and None for a
    compressor that no constructor marked `expressible` has made.
    """

    init: Callable[[jax.Array, Any], Any]  # (key, params) -> state
    reduce: Callable[[jax.Array, Updates, Any, AxisName], tuple[Reduced, Any]]  # (key, updates, state, axis_name)
    message_bits: Callable[[Any], Any]  # params -> tree of int: each array's message, known from shapes alone
    codec: Codec | None = None  # None where compressing and sending are one act
    remembers: bool = False  # whether it carries something of the updates to the next step, itself or by an inner one
    conserves: bool = True  # whether mean == pmean(sent)
    otherwise: "Compressor | None" = None  # for arrays that are not worth compressing; None: their mean
    expression: str | None = None  # the text that `expression.parse` reads back

    def __repr__(self) -> str:
        return self.expression or f"Compressor(reduce={self.reduce!r})"


class Facts(TypedDict):
    """What of a compressor follows from those inside it."""

    remembers: bool
    conserves: bool


def facts_of(*inner: Compressor) -> Facts:
    """What a compressor around these is, since they are: arguments of `Compressor`."""
    return {"remembers": any(one.remembers for one in inner), "conserves": all(one.conserves for one in inner)}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PerWorker:
    """Marks state that differs between workers; all other state is the same on every one of them.

    Inside a step `value` holds one worker's arrays, of shape ``(…)``; outside it, all workers', of shape
    ``(workers, …)``, split over the mesh axis. `jaxcompress.init_state` and `make_train_step` own both directions.
    """

    value: Any


def expressible(constructor: Callable) -> Callable:
    """Lets what `constructor` returns remember the call that made it, as text: ``top_k(0.01, inner=qsgd(8))``."""
    signature = inspect.signature(constructor)

    @functools.wraps(constructor)
    def construct(*args, **kwargs):
        made = constructor(*args, **kwargs)
        text = _call_text(constructor.__name__, signature.bind(*args, **kwargs))
        if isinstance(made, Compressor):
            return made._replace(expression=text)
        made.expression = text
        return made

    construct.__dict__["expressible"] = True  # `expression.parse` calls nothing without this mark
    return construct


def expression_of(value: Any) -> str | None:
    """The text that gives `value` again, or None where it was not made by one of this library's constructors."""
    if isinstance(value, dict):
        items = [(expression_of(key), expression_of(item)) for key, item in value.items()]
        known = all(key is not None and item is not None for key, item in items)
        return "{" + ", ".join(f"{key}: {item}" for key, item in items) + "}" if known else None
    if isinstance(value, str | int | float | bool | None):
        return repr(value)
    return getattr(value, "expression", None)


def _call_text(name: str, call: inspect.BoundArguments) -> str | None:
    """The call in its one canonical form: required arguments by place, others by name and only if they differ."""
    texts = []
    for parameter in call.signature.parameters.values():
        if parameter.name not in call.arguments:
            continue
        value = call.arguments[parameter.name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            texts += [expression_of(item) for item in value]
        elif parameter.default is parameter.empty:
            texts.append(expression_of(value))
        elif (text := expression_of(value)) != expression_of(parameter.default) or text is None:
            texts.append(text and f"{parameter.name}={text}")
    return None if None in texts else f"{name}({', '.join(texts)})"
