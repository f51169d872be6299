"""The programs of examples/ run on four virtual devices, and learn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fast_compilation import FAST_COMPILATION

EXAMPLES = Path(__file__).parent.parent / "examples"


def last_line(program: Path, *arguments: str, flags: str = FAST_COMPILATION) -> str:
    """What a program prints last, on four devices."""
    environment = {"JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu", "PJRT_NPROC": "16"}
    environment["XLA_FLAGS"] = flags
    done = subprocess.run(
        [sys.executable, program.name, *arguments],
        cwd=program.parent,
        env=environment | {"PYTHONPATH": str(EXAMPLES.parent), "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", ["linen", "nnx", "own_step"])
def test_digits_are_read_with_compression(name):
    assert accuracy_of(name, "after") > 0.87


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linen", "nnx", "own_step"])
def test_they_are_read_as_well_without(name):
    assert abs(accuracy_of(name, "before") - accuracy_of(name, "after")) < 0.03


def accuracy_of(name: str, which: str, *arguments: str) -> float:
    line = last_line(EXAMPLES / name / f"{which}.py", *arguments)
    return float(re.search(r"test accuracy (\S+)", line)[1])


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    accuracy = accuracy_of("plain", "after", str(tmp_path))
    assert accuracy > 0.87
    assert accuracy_of("plain", "after", str(tmp_path)) == accuracy


@pytest.mark.slow
def test_a_plain_program_learns_as_well_without(tmp_path):
    assert accuracy_of("plain", "before", str(tmp_path)) > 0.87


@pytest.mark.parametrize("which", ["after", pytest.param("before", marks=pytest.mark.slow)])
def test_a_sharded_transformer_learns_and_stays_sharded(which):
    # With XLA's own flags: here running takes longer than compiling.
    line = last_line(EXAMPLES / "fsdp" / f"{which}.py", flags="")
    assert float(re.search(r"loss (\S+),", line)[1]) < 2.9
    assert "'fsdp'" in line


def test_programs_are_short():
    programs = list(EXAMPLES.glob("*/*.py"))
    assert len(programs) == 10
    for program in programs:
        assert len(program.read_text().splitlines()) <= 120
