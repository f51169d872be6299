"""The README tells the truth: its program runs, and its compressors are compressors."""

import re
import subprocess
import sys
from pathlib import Path

import jaxcompress

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


def test_the_whole_program_trains():
    program = next(block for block in BLOCKS if "make_train_step" in block)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    # x @ w = x[:, :32] has an exact solution; at the start the loss is the variance of the targets, 1.
    assert float(done.stdout) < 0.01


def test_every_expression_can_be_parsed():
    block = next(block for block in BLOCKS if "make_train_step" not in block)
    expressions = [line.split("#")[0].strip() for line in block.splitlines() if line.startswith("error_feedback")]
    assert len(expressions) >= 4
    for text in expressions:
        assert jaxcompress.parse(text).expression


def test_the_map_names_folders_that_exist():
    paths = re.findall(r"^\| `([\w/.]+)`", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert paths
    assert all((ROOT / path).exists() for path in paths if "/" in path)
