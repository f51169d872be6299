"""Every benchmark is in a list, and the commands of the lists can be parsed."""

import importlib
from pathlib import Path

import pytest
import tyro

from benchmarks.everything.commands import HERE, LEFT_OUT

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
COMMANDS = [
    *((one.name, one.arguments) for one in HERE),
    *((one.name, one.quick) for one in HERE if one.quick is not None),
    *((one.name, one.arguments) for one in LEFT_OUT),
]


def test_every_benchmark_is_in_a_list():
    packages = {path.parent.name for path in BENCHMARKS.glob("*/__main__.py")}
    assert {one.name for one in (*HERE, *LEFT_OUT)} == packages - {"everything"}


def test_no_command_stands_twice():
    commands = [(one.name, one.arguments) for one in (*HERE, *LEFT_OUT)]
    assert len(set(commands)) == len(commands)


def test_what_is_left_out_has_a_reason():
    assert all(one.needs for one in LEFT_OUT)


@pytest.mark.parametrize(("name", "arguments"), dict.fromkeys(COMMANDS))
def test_a_command_can_be_parsed(name, arguments):
    module = importlib.import_module(f"benchmarks.{name}.__main__")
    if hasattr(module, "Options"):
        assert tyro.cli(module.Options, args=arguments)
    else:
        assert not arguments


@pytest.mark.parametrize("one", [one for one in HERE if one.quick], ids=lambda one: one.name)
def test_the_texts_of_a_small_case_are_those_of_its_benchmark(one):
    """A filter that matches nothing would run nothing, and succeed."""
    module = importlib.import_module(f"benchmarks.{one.name}.__main__")
    options = tyro.cli(module.Options, args=one.quick)
    for texts, filters in (("TASKS", "task"), ("COMPRESSORS", "only")):
        if hasattr(module, texts) and getattr(options, filters, ()):
            known = list(getattr(module, texts))
            assert any(each in text for each in getattr(options, filters) for text in known)
