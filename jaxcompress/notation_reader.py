"""Reads the syntax tree of a compressor's text, and reports errors with their position."""

import ast
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from jaxcompress.base import Compressor, notation_of
from jaxcompress.constructors import module_constructor, nearest, usage, why_unknown

# As an annotation; it is text in a module with `from __future__ import annotations`.
_COMPRESSOR = (Compressor, "Compressor", "jaxcompress.Compressor")


# A text may come from a stranger.
MOST_CHARACTERS, DEEPEST = 100_000, 60
# Of a long text, an error shows so many characters before its position, and as many after it.
_SHOWN_BEFORE = 100


class ExpressionError(ValueError):
    """An error in the text of a compressor, and its position: `column` counts from 1."""

    def __init__(self, message: str, text: str, column: int):
        # All three are `args`, so that the error can be pickled for another process.
        super().__init__(message, text, column)
        self.message, self.text, self.column = message, text, column

    def __str__(self) -> str:
        begin = max(0, self.column - 1 - _SHOWN_BEFORE)
        part = self.text[begin : begin + 2 * _SHOWN_BEFORE]
        caret = " " * (self.column - 1 - begin) + "^"
        return f"{self.message} (column {self.column})\n  {part}\n  {caret}"


def syntax_tree(line: str) -> ast.expr:
    """Parses `line` as a Python expression; its length and its depth are bounded."""
    if len(line) > MOST_CHARACTERS:
        raise ExpressionError(
            f"the text has {len(line):,} characters, and at most {MOST_CHARACTERS:,} are read",
            line,
            1,
        )
    try:
        tree = ast.parse(line, mode="eval").body
    except SyntaxError as error:
        message = error.msg.partition(";")[0]
        if not line:
            message = "the text is empty; write dense() for no compression"
        raise ExpressionError(
            message, line, min(max(error.offset or 1, 1), len(line) + 1)
        ) from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(
            f"this cannot be read: {str(error) or 'too deeply nested'}", line, 1
        ) from None
    if (depth := _depth(tree)) > DEEPEST:
        raise ExpressionError(
            f"the text is nested {depth} levels deep, and at most {DEEPEST} are read", line, 1
        )
    return tree


def _depth(tree: ast.AST) -> int:
    """The number of calls, lists and dicts around the innermost node, without recursion."""
    deepest, level = 0, [tree]
    while level:
        deepest, level = deepest + 1, [x for node in level for x in ast.iter_child_nodes(node)]
    return deepest


class Reader(NamedTuple):
    """Evaluates a syntax tree, and keeps the text for error messages."""

    line: str
    constructors: dict[str, Callable]  # the library's, by their names
    modules: tuple[str, ...]  # the others that the text may name

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
                self.fail(node, f"{name} must be called: {usage(name, self.constructors[name])}")
            case ast.Name(name):
                self.fail(node, why_unknown("name", name, self.constructors, self.modules))
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
        name, constructor = self._constructor(node.func)
        args = [self.value(arg) for arg in node.args]
        kwargs = self._keywords(node, inspect.signature(constructor))
        self._check(node, args, kwargs, name, constructor)
        try:
            return constructor(*args, **kwargs)
        except (ValueError, TypeError, ArithmeticError) as error:
            return self.fail(node, f"{name}: {error}")
        except Exception as error:  # a user's constructor can raise anything
            return self.fail(node, f"{name}: {type(error).__name__}: {error}")

    def _constructor(self, node: ast.expr) -> tuple[str, Callable]:
        """What a text calls, by its name in the text: ``top_k`` or ``mine.outliers``."""
        match node:
            case ast.Name(name) if name in self.constructors:
                return name, self.constructors[name]
            case ast.Name(name):
                self.fail(node, why_unknown("constructor", name, self.constructors, self.modules))
            case ast.Attribute(owner, name) if module := _dotted_name(owner):
                try:
                    return f"{module}.{name}", module_constructor(module, name, self.modules)
                except LookupError as error:
                    self.fail(node, str(error))
        self.fail(node, "only a constructor's plain name, or module.name, can be called")

    def _keywords(self, node: ast.Call, signature: inspect.Signature) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail(keyword, "** is not allowed here")
            if keyword.arg not in signature.parameters:
                self.fail(
                    keyword,
                    f"unknown argument {keyword.arg!r}{nearest(keyword.arg, signature.parameters)}",
                )
            if keyword.arg in made:
                self.fail(keyword, f"argument {keyword.arg!r} stands twice")
            made[keyword.arg] = self.value(keyword.value)
        return made

    def _check(
        self, node: ast.Call, args: list, kwargs: dict[str, Any], name: str, constructor: Callable
    ) -> None:
        """Refuses a wrong number of arguments, and other values where a compressor is needed."""
        try:
            call = inspect.signature(constructor).bind(*args, **kwargs)
        except TypeError as error:
            self.fail(node, f"{error}; write {usage(name, constructor)}")
        for key, given in call.arguments.items():
            parameter = call.signature.parameters[key]
            for one in given if parameter.kind is parameter.VAR_POSITIONAL else [given]:
                if parameter.annotation in _COMPRESSOR and not isinstance(one, Compressor):
                    self.fail(
                        node,
                        f"{name}: {key} must be a compressor, got {notation_of(one)}",
                    )


def _dotted_name(node: ast.expr) -> str | None:
    """The text of names joined by dots, such as ``pkg.mine``; None for anything else."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None
