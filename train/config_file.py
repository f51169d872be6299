"""Reads a YAML file of settings, and checks names and types so that errors can name the file."""

import difflib
import types
import typing
from pathlib import Path
from typing import Any, Literal

import yaml

from train.errors import InputError, unknown


def read_yaml(path: Path, field_types: dict[str, Any]) -> dict[str, Any]:
    """The settings in a YAML file, with names and types as in `field_types`."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        loader = _StrictLoader(text)
        loader.name = path.name  # in the positions of its errors
        content = loader.get_single_data()
    except OSError as error:
        raise InputError(
            f"config file {str(path)!r} cannot be read: {error.strerror}.{_nearest(path)}"
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        # A ValueError comes from a number or a date that Python cannot represent.
        raise InputError(
            f"config file {str(path)!r} is not YAML: {error}{_quotes_needed(text, error)}"
        ) from error
    if not content:
        raise InputError(
            f"config file {str(path)!r} has no settings. Write them as `field: value`, for example"
            " `epochs: 3`. Without a file the defaults are trained."
        )
    if not isinstance(content, dict):
        raise InputError(
            f"config file {str(path)!r} must be a mapping `field: value`; got a"
            f" {type(content).__name__}."
        )
    for key in content:
        if key not in field_types:
            raise unknown(f"config key in {str(path)!r}", str(key), field_types)
    return {key: _typed(path, key, value, field_types[key]) for key, value in content.items()}


def _typed(path: Path, key: str, value: Any, wanted: Any) -> Any:
    """`value` as the type of its field; YAML reads 1e-3 as text and 2 as an integer."""
    if typing.get_origin(wanted) is types.UnionType:
        if value is None:
            return None
        wanted = typing.get_args(wanted)[0]
    if typing.get_origin(wanted) is tuple and isinstance(value, list):
        item_type, *_ = typing.get_args(wanted)
        return tuple(_typed(path, key, item, item_type) for item in value)
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
    """`value` as a float; None if it is not a number or too large."""
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _nearest(path: Path) -> str:
    """A hint at a YAML file with a name like the missing `path`; empty if there is none."""
    beside = [each.name for each in path.parent.glob("*.y*ml")]
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.5)
    return f" Did you mean {str(path.with_name(near[0]))!r}?" if near else ""


def _quotes_needed(text: str, error: Exception) -> str:
    """A hint if `text` is not YAML at the setting of the compressor; otherwise empty."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    until_there = text.splitlines()[: mark.line + 1] if mark else []
    keys = [line for line in until_there if line[:1].isalpha()]
    if not keys or not keys[-1].startswith("compressor:"):
        return ""
    return (
        "\nPut the text of the compressor in single quotes, and names in double quotes:\n"
        """  compressor: 'partition({"matrix": power_sgd(4), "rest": dense()}, by_shape())'"""
    )


class _StrictLoader(yaml.SafeLoader):
    """YAML without duplicate keys, of which the safe loader would silently use the last."""

    def construct_mapping(self, node, deep=False):
        """A mapping, as from the safe loader."""
        keys = [key.value for key, _ in node.value]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                line = node.value[position][0].start_mark
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", line)
        return super().construct_mapping(node, deep)
