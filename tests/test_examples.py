"""The programs of examples/ run on virtual devices, and learn."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from fast_compilation import FAST_COMPILATION
from subprocesses import free_port, lines_of, run_together

from jaxcompress.distributed.placement import as_numpy

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
    assert main_of(name)(steps=70) > 0.85


def main_of(name: str) -> Callable[..., float]:
    """That of the program with compression, to be run here: starting Python and JAX takes long."""
    return runpy.run_path(str(EXAMPLES / name / "after.py"))["main"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linen", "nnx", "own_step"])
def test_they_are_read_as_well_without(name):
    with_compression = accuracy_of(name, "after")
    assert with_compression > 0.87
    assert abs(accuracy_of(name, "before") - with_compression) < 0.03


def accuracy_of(name: str, which: str, *arguments: str) -> float:
    line = last_line(EXAMPLES / name / f"{which}.py", *arguments)
    return float(re.search(r"test accuracy (\S+)", line)[1])


@pytest.mark.slow
def test_a_folder_may_be_relative(tmp_path):
    folder = os.path.relpath(tmp_path, EXAMPLES / "plain")  # Orbax itself refuses relative ones
    assert accuracy_of("plain", "after", folder) > 0.87


@pytest.mark.parametrize("which", ["before", "after"])
def test_a_run_that_goes_on_ends_as_one_without_a_stop(which, tmp_path):
    main = runpy.run_path(str(EXAMPLES / "plain" / f"{which}.py"))["main"]
    for folder, steps in [("stopped", 100), ("stopped", 200), ("whole", 200)]:
        main(tmp_path / folder, steps)
    found = [saved(tmp_path / folder, 200) for folder in ("stopped", "whole")]
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(one, other)


def saved(folder: Path, step: int) -> Any:
    """The parameters and the state of a checkpoint; keys as numbers."""
    with ocp.CheckpointManager(folder) as manager:
        found = manager.restore(step, args=ocp.args.StandardRestore())
    return jax.tree.map(as_numpy, found)


@pytest.mark.slow
def test_a_plain_program_learns_as_well_without(tmp_path):
    assert accuracy_of("plain", "before", str(tmp_path)) > 0.87


@pytest.mark.parametrize("which", ["after", pytest.param("before", marks=pytest.mark.slow)])
def test_two_hosts_read_digits_together(which):
    coordinator = f"127.0.0.1:{free_port()}"
    call = f"runpy.run_path({str(EXAMPLES / 'hosts' / f'{which}.py')!r})['main']"
    done = run_together(
        [f"import runpy; {call}({coordinator!r}, 2, {process}, steps=100)" for process in (0, 1)]
    )
    first, second = lines_of(done)
    assert [line.split(":")[0] for line in first[:2]] == ["step 50", "step 100"]
    assert first[2:] == second[-1:]
    assert float(re.search(r"test accuracy (\S+)", second[-1])[1]) > 0.87


@pytest.mark.slow
def test_a_sharded_transformer_begins_to_learn(capsys):
    # Of 97 characters: 4.6 at the start.
    assert main_of("fsdp")(steps=12) < 3.8
    assert "'fsdp'" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("which", ["after", "before"])
def test_a_sharded_transformer_learns_and_stays_sharded(which):
    # With XLA's own flags: here running takes longer than compiling.
    line = last_line(EXAMPLES / "fsdp" / f"{which}.py", flags="")
    assert float(re.search(r"loss (\S+),", line)[1]) < 2.9
    assert "'fsdp'" in line


def test_programs_are_short():
    programs = list(EXAMPLES.glob("*/*.py"))
    assert len(programs) == 12
    for program in programs:
        assert len(program.read_text().splitlines()) <= 120
