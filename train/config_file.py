"""Reading a YAML file of settings: names and types are checked where the file can still be named."""

import difflib
import types
import typing
from pathlib import Path
from typing import Any, Literal

import yaml

from train.errors import InputError, unknown


def read_yaml(path: Path, field_types: dict[str, Any]) -> dict[str, Any]:
    """The settings of a YAML file: a mapping from names to values of the types that `field_types` gives them."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except OSError as error:
        raise InputError(f"config file {str(path)!r} cannot be read: {error.strerror}.{_nearest(path)}") from error
    except (yaml.YAMLError, ValueError) as error:  # a ValueError from a number or a date that Python cannot hold
        raise InputError(f"config file {str(path)!r} is not YAML: {error}") from error
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise InputError(f"config file {str(path)!r} must be a mapping `field: value`; got a {type(content).__name__}.")
    for key in content:
        if key not in field_types:
            raise unknown(f"config key in {str(path)!r}", str(key), field_types)
    return {key: _typed(path, key, value, field_types[key]) for key, value in content.items()}


def _typed(path: Path, key: str, value: Any, wanted: Any) -> Any:
    """`value` as the type of its field, or an error; YAML reads 1e-3 as text and 2 as an integer, both are numbers."""
    if typing.get_origin(wanted) is types.UnionType:
        if value is None:
            return None
        wanted = typing.get_args(wanted)[0]
    if typing.get_origin(wanted) is tuple and isinstance(value, list):
        return tuple(_typed(path, key, item, float) for item in value)
    if typing.get_origin(wanted) is Literal:
        if value not in typing.get_args(wanted):
            raise unknown(f"{key} in {str(path)!r}", str(value), typing.get_args(wanted))
        return value
    if wanted is float and isinstance(value, int | str) and not isinstance(value, bool):
        with_point = _number(value)
        value = value if with_point is None else with_point
    # bool is a subclass of int, but `workers: yes` is a mistake.
    if not isinstance(wanted, type) or type(value) is not wanted:
        expected = getattr(wanted, "__name__", str(wanted))
        raise InputError(f"{key} in {str(path)!r} must be of type {expected}; got {value!r}.")
    return value


def _number(value: int | str) -> float | None:
    """`value` as a number, or None where it is not one, or too large to be one."""
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _nearest(path: Path) -> str:
    """Which YAML file beside the missing `path` was perhaps meant, in words; empty where there is none like it."""
    beside = [each.name for each in path.parent.glob("*.y*ml")]
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.5)
    return f" Did you mean {str(path.with_name(near[0]))!r}?" if near else ""


class _StrictLoader(yaml.SafeLoader):
    """YAML in which no key may stand twice; by itself it would silently take the last one."""

    def construct_mapping(self, node, deep=False):
        """A mapping, as the safe loader makes it."""
        keys = [key.value for key, _ in node.value]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                line = node.value[place][0].start_mark
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands there twice", line)
        return super().construct_mapping(node, deep)
