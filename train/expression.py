"""What stands in the expression of a compressor, for the few things that a run must know of it."""

import ast


def constructors_in(expression: str) -> set[str]:
    """The names of all that is called in a text that `jaxcompress.unparse` wrote, and of nothing in its strings."""
    calls = [node.func for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Call)]
    return {name.id for name in calls if isinstance(name, ast.Name)}
