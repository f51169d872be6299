"""The site: `make docs` builds it from the pages of this folder into build/site."""

import os
import re
from importlib.metadata import version as installed_version
from pathlib import Path

project = "jaxcompress"
author = "The jaxcompress authors"
version = release = installed_version("jaxcompress")

extensions = ["myst_nb", "sphinx_copybutton"]
nb_execution_mode = (
    "off"  # notebooks are saved with their outputs; tests/test_notebooks.py runs them
)
myst_heading_anchors = 4  # links to headings as on other sites: page.md#a-heading
html_theme = "sphinx_book_theme"
html_title = "jaxcompress"
html_theme_options = {
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "home_page_in_toc": False,
    "navbar_persistent": [],
}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
exclude_patterns = ["_build"]

# Pages of the site that are files of the repository, beside this folder.
FILES = {
    "contributing": "CONTRIBUTING.md",
    "security": "SECURITY.md",
    "changelog": "CHANGELOG.md",
    "deploy": "deploy/README.md",
}
DOCS = Path(__file__).parent


def fill(app, name: str, source: list[str]) -> None:
    """Takes the text of a page from its file, and lets links between files lead to pages."""
    page = DOCS / name
    file = DOCS.parent / FILES[name] if name in FILES else page
    if name in FILES:
        source[0] = file.read_text()
    source[0] = re.sub(
        r"\]\(([\w./-]+)(#[^)]*)?\)",
        lambda link: f"]({target(file.parent / link[1], page.parent)}{link[2] or ''})",
        source[0],
    )


def target(path: Path, folder: Path) -> str:
    """Where a link to this file leads from a page in `folder`."""
    pages = {(DOCS.parent / file).resolve(): DOCS / f"{page}.md" for page, file in FILES.items()}
    path = path.resolve()
    if path.is_dir():
        path /= "index.md" if path == DOCS.resolve() else "README.md"
    return os.path.relpath(pages.get(path, path), folder)


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("source-read", fill)
