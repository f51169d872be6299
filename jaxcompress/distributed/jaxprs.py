"""The programs inside a traced program."""

from collections.abc import Iterator, Mapping
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr


def sub_jaxprs(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    """The programs inside an equation: a body, branches, a called function."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item


def primitives(jaxpr: Jaxpr) -> Iterator[str]:
    """The name of the primitive of each equation, those of programs inside included."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in sub_jaxprs(equation.params):
            yield from primitives(inner)
