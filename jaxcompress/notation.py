"""Compressors as text: one notation for Python, YAML, the command line and checkpoints.

The text is a Python call, read with `ast` and never evaluated. It may call only the constructors
that `jaxcompress` exports. Arguments are literals, other constructors, and tuples, lists and dicts
of them.
"""

import ast
import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from jaxcompress.base import Compressor, notation_of


class ExpressionError(ValueError):
    """An error in the text of a compressor, and its position: `column` counts from 1."""

    def __init__(self, message: str, text: str, column: int):
        # All three are `args`, so that the error can be pickled for another process.
        super().__init__(message, text, column)
        self.message, self.text, self.column = message, text, column

    def __str__(self) -> str:
        return f"{self.message} (column {self.column})\n  {self.text}\n  {' ' * (self.column - 1)}^"


def parse(text: str) -> Compressor:
    """The compressor that `text` describes.

    Line breaks count as spaces, so a config file can fold a long expression over several lines.

    Args:
      text: A call of a compressor's constructor, such as
        ``"error_feedback(top_k(0.01, inner=qsgd(8)))"``.

    Returns:
      What the same text gives in Python after ``from jaxcompress import *``.

    Raises:
      ExpressionError: a `ValueError` with the position of the error. The text is not such a call,
        or it names an unknown constructor or argument (the message suggests the nearest name), or a
        constructor refuses a value (with its own message).

    Example:
      >>> parse("error_feedback(top_k(density=0.01))")
      error_feedback(top_k(0.01))
    """
    if not isinstance(text, str):
        raise ExpressionError(
            "parse reads text, as in parse('top_k(0.01)'), and got no text", type(text).__name__, 1
        )
    line = text.replace("\r", " ").replace("\n", " ").replace("\t", " ").strip()
    tree = _syntax_tree(line)
    reader = _Reader(line, _constructors())
    made = reader.value(tree)
    if not isinstance(made, Compressor):
        reader.fail(tree, "this is not a compressor: it can only be an argument of one")
    return made


def unparse(compressor: Compressor) -> str:
    """The text that `parse` reads back as `compressor`, in one canonical form.

    Required arguments are positional. The others are named, and omitted if equal to their default.

    Args:
      compressor: A compressor made by this library's constructors.

    Returns:
      One line of text, with ``unparse(parse(text)) == text`` for every such line.

    Raises:
      ValueError: if an argument in `compressor` cannot be written: a function, an array, a custom
        compressor, or a number that is not a plain Python number.

    Example:
      >>> from jaxcompress import error_feedback, top_k
      >>> unparse(error_feedback(inner=top_k(density=0.01)))
      'error_feedback(top_k(0.01))'
    """
    text = repr(compressor)
    try:
        again = repr(parse(text))
    except ExpressionError as error:
        raise ValueError(
            "this compressor cannot be written as text: it holds something other than literals and"
            f" what jaxcompress's own constructors made. {error}"
        ) from error
    if again != text:
        raise ValueError(
            f"this compressor cannot be written as text: {text!r} reads back as {again!r}."
        )
    return text


def _constructors() -> dict[str, Callable]:
    """What a text may call: every exported constructor that `parseable` marks."""
    # `jaxcompress` imports this module, so this module can import it only when it parses.
    import jaxcompress

    modules = (jaxcompress.contrib, jaxcompress)
    exported = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {name: value for name, value in exported.items() if getattr(value, "parseable", False)}


def _syntax_tree(line: str) -> ast.expr:
    """Parses `line` as a Python expression."""
    try:
        return ast.parse(line, mode="eval").body
    except SyntaxError as error:
        message = error.msg if line else "the text is empty; write dense() for no compression"
        raise ExpressionError(
            message, line, min(max(error.offset or 1, 1), len(line) + 1)
        ) from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(
            f"this cannot be read: {str(error) or 'too deeply nested'}", line, 1
        ) from None


class _Reader(NamedTuple):
    """Evaluates a syntax tree, and keeps the text for error messages."""

    line: str
    constructors: dict[str, Callable]

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        """Raises an error that points to `node`."""
        # `ast` counts bytes; `column` counts characters.
        before = self.line.encode()[: node.col_offset].decode()  # pyright: ignore[reportAttributeAccessIssue]
        raise ExpressionError(message, self.line, len(before) + 1)

    def value(self, node: ast.AST) -> Any:
        """A literal, the result of a constructor, or a container of these."""
        match node:
            case ast.Constant(value=str() | int() | float() | None as literal):
                return literal
            case ast.UnaryOp(ast.USub(), ast.Constant(value=int() | float() as number)) if (
                not isinstance(number, bool)
            ):
                return -number
            case ast.List(items):
                return [self.value(item) for item in items]
            case ast.Tuple(items):
                return tuple(self.value(item) for item in items)
            case ast.Dict():
                return self._dict(node)
            case ast.Call():
                return self._call(node)
            case ast.Name(name) if name in self.constructors:
                self.fail(node, f"{name} must be called: {_usage(name, self.constructors[name])}")
            case ast.Name(name):
                self.fail(node, _not_a_constructor("name", name, self.constructors))
        self.fail(node, "expected a constructor's call, a number, a string, True, False or None")

    def _dict(self, node: ast.Dict) -> dict:
        made = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if not isinstance(key_node, ast.Constant):
                self.fail(key_node or value_node, "a key must be a literal")
            key = self.value(key_node)
            if key in made:
                self.fail(key_node, f"key {key!r} stands twice")
            made[key] = self.value(value_node)
        return made

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name):
            self.fail(node.func, "only a constructor's plain name can be called")
        name = node.func.id
        if name not in self.constructors:
            self.fail(node.func, _not_a_constructor("constructor", name, self.constructors))
        constructor = self.constructors[name]
        args = [self.value(arg) for arg in node.args]
        kwargs = self._keywords(node, inspect.signature(constructor))
        self._check(node, args, kwargs, constructor)
        try:
            return constructor(*args, **kwargs)
        except (ValueError, TypeError, ArithmeticError) as error:
            return self.fail(node, f"{name}: {error}")

    def _keywords(self, node: ast.Call, signature: inspect.Signature) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail(keyword, "** is not allowed here")
            if keyword.arg not in signature.parameters:
                self.fail(
                    keyword,
                    "unknown argument"
                    f" {keyword.arg!r}{_nearest(keyword.arg, signature.parameters)}",
                )
            if keyword.arg in made:
                self.fail(keyword, f"argument {keyword.arg!r} stands twice")
            made[keyword.arg] = self.value(keyword.value)
        return made

    def _check(
        self, node: ast.Call, args: list, kwargs: dict[str, Any], constructor: Callable
    ) -> None:
        """Refuses a wrong number of arguments, and other values where a compressor is needed."""
        name = constructor.__name__
        try:
            call = inspect.signature(constructor).bind(*args, **kwargs)
        except TypeError as error:
            self.fail(node, f"{error}; write {_usage(name, constructor)}")
        for key, given in call.arguments.items():
            parameter = call.signature.parameters[key]
            for one in given if parameter.kind is parameter.VAR_POSITIONAL else [given]:
                if parameter.annotation in (Compressor, "Compressor") and not isinstance(
                    one, Compressor
                ):
                    self.fail(
                        node,
                        f"{name}: {key} must be a compressor, got {notation_of(one)}",
                    )


def _not_a_constructor(kind: str, name: str, constructors: dict[str, Callable]) -> str:
    """Why a text cannot call this name."""
    import jaxcompress  # as in `_constructors`

    in_python = (
        f"{name} is called in Python, and is no compressor: a text names what stands inside"
        " compress(…)"
    )
    return (
        in_python
        if name in jaxcompress.__all__
        else f"unknown {kind} {name!r}{_nearest(name, constructors)}"
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    """Suggests the nearest known name, or lists all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(names))}"


def _usage(name: str, constructor: Callable) -> str:
    """The signature of `constructor`, such as ``top_k(density, inner=dense())``."""
    words = []
    for parameter in inspect.signature(constructor).parameters.values():
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        default = (
            "" if parameter.default is parameter.empty else f"={notation_of(parameter.default)}"
        )
        words.append(f"{star}{parameter.name}{default}")
    return f"{name}({', '.join(words)})"
