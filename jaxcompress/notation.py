"""Compressors as text: one notation for Python, YAML, the command line and checkpoints.

The text is a Python call, read with `ast` and never evaluated. It may call only the constructors
that `jaxcompress` exports, and those of modules that the caller allows. Arguments are literals,
other constructors, and tuples, lists and dicts of them.
"""

import sys
from collections.abc import Sequence

from jaxcompress.base import Compressor
from jaxcompress.constructors import library_constructors, modules_of
from jaxcompress.notation_reader import ExpressionError, Reader, syntax_tree


def parse(text: str, modules: Sequence[str] = ()) -> Compressor:
    """The compressor that `text` describes.

    Line breaks count as spaces, so a config file can fold a long expression over several lines.

    A text may call your own constructors too. Decorate them with `parseable`, give their module in
    `modules`, and write its name before theirs: with ``modules=("mine",)`` a text may say
    ``error_feedback(mine.outliers(2.0))``. A module is imported only if it is in `modules` and the
    text names it.

    Args:
      text: A call of a compressor's constructor, such as
        ``"error_feedback(top_k(0.01, inner=qsgd(8)))"``.
      modules: Full names of the modules that `text` may name, such as ``("mine", "pkg.codecs")``.

    Returns:
      What the same text gives in Python after ``from jaxcompress import *`` and the imports of
      `modules`.

    Raises:
      ExpressionError: a `ValueError` with the position of the error. The text is not such a call,
        or it names an unknown constructor or argument (the message suggests the nearest name), or a
        constructor refuses a value (with its own message), or a module is not in `modules` or
        cannot be imported.
      ValueError: if `modules` is no tuple or list of names.

    Example:
      >>> parse("error_feedback(top_k(density=0.01))")
      error_feedback(top_k(0.01))
    """
    if not isinstance(text, str):
        raise ExpressionError(
            "parse reads text, as in parse('top_k(0.01)'), and got no text", type(text).__name__, 1
        )
    if not isinstance(modules, tuple | list) or not all(isinstance(x, str) for x in modules):
        raise ValueError(f"modules are names, as in modules=('mine',); got {modules!r}.")
    line = text.replace("\r", " ").replace("\n", " ").replace("\t", " ").strip()
    tree = syntax_tree(line)
    reader = Reader(line, library_constructors(), tuple(modules))
    made = reader.value(tree)
    if not isinstance(made, Compressor):
        reader.fail(tree, "this is not a compressor: it can only be an argument of one")
    return made


def unparse(compressor: Compressor) -> str:
    """The text that `parse` reads back as `compressor`, in one canonical form.

    Required arguments are positional. The others are named, and omitted if equal to their default.
    Constructors of other modules are written with their module, such as ``mine.outliers(2.0)``, and
    `parse` needs these modules to read the text back.

    Args:
      compressor: A compressor made by `parseable` constructors, this library's or your own.

    Returns:
      One line of text, with ``unparse(parse(text, modules)) == text`` for every such line.

    Raises:
      ValueError: if an argument in `compressor` cannot be written: a function, an array, a
        compressor that no `parseable` constructor made, or a number that is not a plain Python
        number. Or if a constructor is not found in its module by its own name.

    Example:
      >>> from jaxcompress import error_feedback, top_k
      >>> unparse(error_feedback(inner=top_k(density=0.01)))
      'error_feedback(top_k(0.01))'
    """
    text = repr(compressor)
    try:
        # Text never causes an import here: these modules have made `compressor`.
        again = repr(parse(text, sorted(modules_of(compressor) & sys.modules.keys())))
    except ExpressionError as error:
        raise ValueError(
            "this compressor cannot be written as text: it holds something other than literals and"
            f" what parseable constructors made. {error}"
        ) from error
    if again != text:
        raise ValueError(
            f"this compressor cannot be written as text: {text!r} reads back as {again!r}."
        )
    return text
