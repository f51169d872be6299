"""The pages that the code tells are what it says now, and what they call possible is."""

import importlib.util
import inspect
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from fast_compilation import FAST_COMPILATION
from helpers import FLOAT32, first_state, mean_over_workers, random_updates, run
from subprocesses import user_environment

import jaxcompress

DOCS = Path(__file__).parent.parent / "docs"
LIKE = {"matrix": jnp.zeros((16, 24)), "vector": jnp.zeros(70)}


def generator():
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = generator()


@pytest.mark.parametrize("name", GENERATE.PAGES)
def test_a_generated_page_is_up_to_date(name):
    assert (DOCS / name).read_text() == GENERATE.PAGES[name](), "run: make docs"


def test_every_named_config_exists():
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md", *DOCS.parent.glob("*/README.md")]
    named = {
        (page.name, config)
        for page in pages
        for config in re.findall(r"configs/\w+\.yaml", page.read_text())
    }
    assert len(named) > 10
    assert not [(page, path) for page, path in named if not (DOCS.parent / path).exists()]


def test_every_public_function_has_one_section():
    functions = [
        name
        for module in (jaxcompress, jaxcompress.contrib)
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
    ]
    pages = [page() for page in GENERATE.PAGES.values()]
    sections = re.findall(r"^### `(\w+)`$", "\n".join(pages), flags=re.MULTILINE)
    classes = {"VirtualMesh", "PerShard", "Plan", "Watchdog"}
    assert sorted(set(sections) - classes) == sorted(functions)
    assert len(sections) == len(set(sections))


WITH_PROGRAMS = [
    path
    for path in sorted(DOCS.glob("*.md"))
    if path.name not in GENERATE.PAGES and "```python\n" in path.read_text()
]


# Each program in a process of its own, which has imported JAX: that takes longer than most of them.
RUN_EACH = """
import json, os, sys
import jax, optax, jaxcompress

failed = []
for name, program in json.load(sys.stdin).items():
    child = os.fork()
    if child == 0:
        exec(compile(program, name, "exec"), globals())  # as the module __main__
        sys.exit()
    if os.waitpid(child, 0)[1]:
        failed.append(name)
if failed:
    sys.exit(f"these pages do not run: {failed}")
"""


# Programs that take as long as all others together.
LONG = {"planning.md", "periods.md"}


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param(lambda name: name not in LONG, id="short"),
        pytest.param(lambda name: name in LONG, id="long", marks=pytest.mark.slow),
    ],
)
def test_the_python_of_each_page_runs_from_top_to_bottom(pages):
    programs = {
        path.name: "\n".join(re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL))
        for path in WITH_PROGRAMS
        if pages(path.name)
    }
    assert len(programs) >= 2
    done = subprocess.run(
        [sys.executable, "-c", RUN_EACH],
        input=json.dumps(programs),
        cwd=DOCS.parent,
        env=user_environment() | {"XLA_FLAGS": FAST_COMPILATION},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def expressions_beside_torch() -> list[str]:
    """What docs/from_torch.md calls the same here: every code span of a table but those of the
    first columns.
    """
    rows = [
        line.split("|")[1:-1]
        for line in (DOCS / "from_torch.md").read_text().splitlines()
        if "`" in line
    ]
    spans = [
        span
        for row in rows
        if len(row) > 1
        for cell in row[1:]
        for span in re.findall(r"`([^`]+)`", cell)
    ]
    return [span for span in spans if "(" in span]


@pytest.mark.parametrize("text", dict.fromkeys(expressions_beside_torch()))
def test_every_expression_beside_torch_is_one(text):
    if text.startswith("compress("):
        made = eval(
            text,
            {
                name: getattr(module, name)
                for module in (jaxcompress, jaxcompress.contrib)
                for name in module.__all__
            },
        )
        assert isinstance(made, optax.GradientTransformation)
    else:
        assert repr(jaxcompress.parse(text)) == text


def test_every_option_of_the_reference_has_its_line():
    named = " ".join(
        line.split("|")[1]
        for line in (DOCS / "from_torch.md").read_text().splitlines()
        if "|" in line
    )
    options = {
        *(
            "rank",
            "min_compression_rate",
            "num_iters_per_step",
            "start_compressing_after_num_steps",
        ),
        *("use_error_feedback=False", "warm_start=False", "orthogonalization_epsilon"),
        *("fp16_compress_hook", "bf16_compress_hook", "batched_powerSGD_hook"),
    }
    assert {option for option in options if f"`{option}`" not in named} == set()


# All pairs of the table of compositions on a mesh of one axis. Two axes:
# tests/collectives/test_hierarchical.py.
PAIRS = [
    outer.format(inner)
    for outer, inner in itertools.product(GENERATE.OUTER, GENERATE.INNER)
    if "hierarchical" not in outer
]


def can_be_built(text: str) -> bool:
    """Whether the table has a ✓ there."""
    try:
        jaxcompress.parse(text)
    except jaxcompress.ExpressionError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("text", PAIRS)
def test_every_pair_that_can_be_built_keeps_the_law(text):
    if not can_be_built(text):
        pytest.skip("cannot be built")
    compressor, updates = jaxcompress.parse(text), random_updates(0, LIKE)
    outcome = run(compressor, updates, first_state(compressor, LIKE))
    # The memory is zero before this first step.
    memory = jaxcompress.error_memory(outcome.state, updates)
    lacking = mean_over_workers(jax.tree.map(jnp.add, outcome.residual, memory))
    for mean, rest, x in zip(
        *map(jax.tree.leaves, (outcome.mean, lacking, mean_over_workers(updates))), strict=True
    ):
        np.testing.assert_allclose(mean[0] + rest, x, **FLOAT32)


def test_pairs_are_looked_for():
    assert sum(map(can_be_built, PAIRS)) > 100
