"""The constructors that the text of a compressor may call.

Those of the library stand in a text by their name. Those of a user's module stand after the name of
the module, which is imported only if the caller allows it. Only what `parseable` marks is called.
"""

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

from jaxcompress.base import Call, constructor_name, notation_of


def library_constructors() -> dict[str, Callable]:
    """Every constructor that the library exports, by its name."""
    # `jaxcompress` imports this module, so this module can import it only when a text is read.
    import jaxcompress

    modules = (jaxcompress.contrib, jaxcompress)
    exported = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {name: value for name, value in exported.items() if _is_parseable(value)}


def module_constructor(module: str, name: str, allowed: tuple[str, ...]) -> Callable:
    """The constructor that a text calls as ``module.name``; `allowed` are modules.

    Raises:
      LookupError: if the text may not call it, with what to do.
    """
    if f"{module}.".startswith("jaxcompress."):
        raise LookupError(f"jaxcompress's constructors stand without a module: write {name}")
    if module not in allowed:
        needed = (*allowed, module)
        raise LookupError(
            f"module {module!r} is not allowed; allow it by parse(text, modules={needed!r}), or in"
            f" the training program by --compressor-modules {' '.join(needed)}"
        )
    # What the module itself holds: its `__getattr__` could make up other names.
    members, written = vars(_imported(module)), f"{module}.{name}"
    found = members.get(name)
    if _is_parseable(found):
        if constructor_name(found) == written:
            return found
        raise LookupError(f"{written} is {constructor_name(found)}: write that name")
    if isinstance(found, FunctionType | type) and found.__module__ == module:
        raise LookupError(f"a text cannot call {written}: decorate it with @jaxcompress.parseable")
    known = [
        f"{module}.{key}"
        for key, value in members.items()
        if _is_parseable(value) and constructor_name(value) == f"{module}.{key}"
    ]
    none = f"; {module} decorates none with @jaxcompress.parseable"
    raise LookupError(f"unknown constructor {written!r}{nearest(written, known) or none}")


def modules_of(value: Any) -> set[str]:
    """The modules of all constructors whose calls made `value`."""
    call = getattr(value, "call", None)
    if isinstance(call, Call):
        return {call.constructor.__module__} | modules_of(call.arguments)
    parts = value.values() if isinstance(value, dict) else value
    found = map(modules_of, parts if isinstance(value, dict | list | tuple) else ())
    return set().union(*found)


def why_unknown(kind: str, name: str, known: Iterable[str], modules: Iterable[str]) -> str:
    """Why a text cannot call this plain name, which may lack one of `modules` before it."""
    import jaxcompress  # as in `library_constructors`

    own = ", ".join(modules)
    hint = f"; write the module before a constructor of {own}" if own else ""
    in_python = (
        f"{name} is called in Python, and is no compressor: a text names what stands inside"
        " compress(…)"
    )
    quotes = "; a string needs quotes" if kind == "name" else ""
    return (
        in_python
        if name in jaxcompress.__all__
        else f"unknown {kind} {name!r}{nearest(name, known)}{hint}{quotes}"
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggests the nearest known name, or lists all of them; empty if there is none."""
    names = list(known)
    if not names:
        return ""
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(names))}"


def usage(name: str, constructor: Callable) -> str:
    """The signature of `constructor`, such as ``top_k(density, inner=dense())``."""
    words = []
    for parameter in inspect.signature(constructor).parameters.values():
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        needs_name = "=…" if parameter.kind is parameter.KEYWORD_ONLY else ""
        default = (
            needs_name
            if parameter.default is parameter.empty
            else f"={notation_of(parameter.default)}"
        )
        words.append(f"{star}{parameter.name}{default}")
    return f"{name}({', '.join(words)})"


def _is_parseable(value: Any) -> TypeGuard[Callable]:
    # `parseable` returns a function. Other objects can make up attributes.
    return inspect.isfunction(value) and getattr(value, "parseable", False)


def _imported(module: str) -> ModuleType:
    """The module of this name; a `LookupError` says why it cannot be imported."""
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a module can raise anything
        raise LookupError(
            f"module {module!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
