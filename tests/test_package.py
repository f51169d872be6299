"""What is built and installed is the whole library, and nothing else."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from subprocesses import user_environment

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def program() -> str:
    """The complete program of the README."""
    return re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]


def test_the_wheel_has_every_module_of_the_library_and_its_types(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "jaxcompress").rglob("*.py")}
    packaged = {name for name in names if ".dist-info/" not in name}
    assert packaged == modules | {"jaxcompress/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_program_of_the_readme_runs_with_the_wheel_alone(wheel, tmp_path):
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    check = f"import jaxcompress; assert jaxcompress.__file__.startswith({str(installed)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", check + program()],
        cwd=tmp_path,
        env=user_environment() | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 0.2


@pytest.mark.slow
def test_pip_installs_the_wheel_in_a_fresh_environment(wheel, tmp_path):
    python = tmp_path / "fresh" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True)
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    run = [str(python), "-c", program()]
    subprocess.run(run, cwd=tmp_path, env=user_environment(), check=True, timeout=300)


def test_the_versions_are_one():
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    assert cited == PROJECT["version"]
    heads = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert PROJECT["version"] in heads[:2]
