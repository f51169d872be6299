"""The command that a row records."""

from pathlib import Path

from benchmarks.time_to_accuracy.__main__ import command


def test_the_command_quotes_its_arguments_and_names_no_place_of_this_machine():
    arguments = ["--task", "transformer 4M", "--torch-python", "/somewhere/bin/python"]
    assert command(arguments, Path("/somewhere/bin/python")) == (
        "python -m benchmarks.time_to_accuracy --task 'transformer 4M'"
        " --torch-python PATH/bin/python"
    )
