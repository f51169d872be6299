"""The pages that the code tells are what it says now, and what they call possible is."""

import importlib.util
import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import FLOAT32, first_state, mean_over_workers, random_updates, run

import jaxcompress
from benchmarks.schemes import public_schemes

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


def test_every_compressor_at_the_door_has_its_section_in_one_family():
    listed = [name for family in GENERATE.FAMILIES for name in GENERATE.names(family)]
    assert sorted(listed) == sorted(public_schemes())


def expressions_beside_torch() -> list[str]:
    """What docs/from_torch.md calls the same here: every code span of a table but those of the first columns."""
    rows = [line.split("|")[1:-1] for line in (DOCS / "from_torch.md").read_text().splitlines() if "`" in line]
    spans = [span for row in rows if len(row) > 1 for cell in row[1:] for span in re.findall(r"`([^`]+)`", cell)]
    return [span for span in spans if "(" in span]


@pytest.mark.parametrize("text", dict.fromkeys(expressions_beside_torch()))
def test_every_expression_beside_torch_is_one(text):
    if text.startswith("compress("):
        made = eval(text, {name: getattr(jaxcompress, name) for name in jaxcompress.__all__})
        assert isinstance(made, optax.GradientTransformation)
    else:
        assert jaxcompress.parse(text).expression == text


def test_every_option_of_the_reference_has_its_line():
    named = " ".join(line.split("|")[1] for line in (DOCS / "from_torch.md").read_text().splitlines() if "|" in line)
    options = {
        *("rank", "min_compression_rate", "num_iters_per_step", "start_compressing_after_num_steps"),
        *("use_error_feedback=False", "warm_start=False", "orthogonalization_epsilon"),
        *("fp16_compress_hook", "bf16_compress_hook", "batched_powerSGD_hook"),
    }
    assert {option for option in options if f"`{option}`" not in named} == set()


def pairs_that_keep_the_law() -> list[str]:
    """All that the table of compositions ticks, but for declared exceptions to the law."""
    found = []
    for outer, inner in itertools.product(GENERATE.OUTER, GENERATE.INNER):
        try:
            compressor = jaxcompress.parse(outer.format(inner))
        except jaxcompress.ExpressionError:
            continue
        # Two axes: tests/collectives/test_hierarchical.py.
        if compressor.conserves and "hierarchical" not in outer:
            found.append(outer.format(inner))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("text", pairs_that_keep_the_law())
def test_every_pair_that_can_be_built_keeps_the_law(text):
    compressor = jaxcompress.parse(text)
    outcome = run(compressor, random_updates(0, LIKE), first_state(compressor, LIKE))
    for mean, expected in zip(*map(jax.tree.leaves, (outcome.mean, mean_over_workers(outcome.sent))), strict=True):
        np.testing.assert_allclose(mean[0], expected, **FLOAT32)


def test_pairs_are_looked_for():
    assert len(pairs_that_keep_the_law()) > 100
