"""The notebooks of docs/notebooks run, and are saved with what they show.

`python tests/test_notebooks.py [NAME …]` runs them, or some of them, and saves their outputs. It
needs nbclient, nbformat and ipykernel.
"""

import ast
import base64
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
TIMEOUT = 120  # seconds for each cell
MOST_BYTES = 400_000
REASON = "notebooks are run by nbclient and ipykernel: pip install nbclient ipykernel"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def code_cells(notebook: Any) -> list[Any]:
    """The cells with code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def texts(notebook: Any) -> str:
    """All text that the cells have printed or returned."""
    found = []
    for cell in code_cells(notebook):
        for output in cell["outputs"]:
            data = output.get("data", {})
            found += [output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")]
    return "\n".join("".join(text) for text in found)


def executed(path: Path) -> Any:
    """The notebook of a path with new outputs, and without what differs from run to run."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    client = NotebookClient(notebook, timeout=TIMEOUT, record_timing=False, resources=resources)
    client.execute()
    notebook.metadata = METADATA
    for cell in code_cells(notebook):
        cell.metadata = {}
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                output.metadata = {}
                output.data = {"image/png": in_few_colours(output.data["image/png"])}
    return notebook


def in_few_colours(encoded: str) -> str:
    """A picture of a third of the size, in base64 as before."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
    small = io.BytesIO()
    picture.quantize(256, Image.Quantize.FASTOCTREE).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def save(notebook: Any, path: Path) -> None:
    """Writes a notebook as it is committed."""
    import nbformat

    path.write_text(nbformat.writes(notebook) + "\n")


def test_there_are_notebooks():
    assert {path.stem for path in PATHS} >= {"demo", "results", "nnx", "diloco"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_is_saved_as_it_ran_from_top_to_bottom(path):
    notebook = json.loads(path.read_text())
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        ast.parse("".join(cell["source"]))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [one for one in outputs if one["output_type"] == "error"] == []
    assert [one for one in outputs if one.get("name") == "stderr"] == []
    assert sum("image/png" in one.get("data", {}) for one in outputs) >= 1


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_holds_nothing_of_the_machine_that_ran_it(path):
    notebook = json.loads(path.read_text())
    assert re.findall(r"/(?:work|tmp|root|home)\b", texts(notebook)) == []
    assert notebook["metadata"] == METADATA
    assert [cell["metadata"] for cell in notebook["cells"] if cell["metadata"]] == []
    assert path.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_link_of_a_notebook_leads_to_a_file(path):
    cells = json.loads(path.read_text())["cells"]
    prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", prose):
        assert (NOTEBOOKS / target).exists(), target


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    for module in ("nbformat", "nbclient", "ipykernel"):
        pytest.importorskip(module, reason=REASON)
    new = executed(path)
    if path.stem == "results":
        # It only reads files, so other text means that they have changed since it was saved.
        assert texts(new) == texts(json.loads(path.read_text())), (
            "run: python tests/test_notebooks.py results"
        )


if __name__ == "__main__":
    for each in PATHS:
        if not sys.argv[1:] or each.stem in sys.argv[1:]:
            save(executed(each), each)
