"""The shape of the house: who may import whom, who may touch the network, and what every file owes its reader.

Each check reads source with `ast` and returns what it finds wrong, as text. It runs on this repository, where it must
find nothing, and on a small tree that breaks its rule, where it must not miss it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import jaxcompress

REPOSITORY = Path(__file__).parents[1]
MAX_LINES = 220

# Imports go to a lower floor only, or stay inside one package.
FLOORS = {
    "base": 0,
    "_compat": 0,
    "ops": 1,
    "schedules": 1,
    "collectives": 2,
    "compressors": 3,
    "feedback": 3,
    "routing": 3,
    "stats": 4,
    "transform": 4,
    "transaction": 4,
    "optimizers": 5,
    "distributed": 5,
    "expression": 6,
    "__init__": 7,
}
SCHEMES = {"compressors", "feedback", "routing"}

UPWARD_BY_DESIGN = {
    # It calls what the door exports, so it looks there, inside a function, once a text is read.
    ("jaxcompress/expression.py", "__init__"),
}

COLLECTIVES = {
    *("psum", "pmean", "pmax", "pmin", "psum_scatter", "all_gather", "all_to_all", "ragged_all_to_all"),
    *("ppermute", "pshuffle", "pswapaxes", "pbroadcast"),
}
NETWORK_BY_DESIGN = {
    "jaxcompress/_compat.py": "spells the gather that knows its result is replicated",
    "jaxcompress/distributed/step.py": "averages the loss, the metrics and the running statistics",
}

MAXIMA_BY_DESIGN = {
    "jaxcompress/ops/magnitude.py": "puts infinity for what a maximum loses",
    "jaxcompress/ops/block_maximum.py": "compares bits with places among them",
    "jaxcompress/ops/counting.py": "compares integers",
}

# Tests of what no single file holds.
TESTS_WITHOUT_A_FILE = {
    "tests/test_laws.py",
    "tests/test_adversarial.py",
    "tests/test_properties.py",
    "tests/test_architecture.py",
    "tests/test_optax.py",
    "tests/test_optimizers_matrix.py",
    "tests/test_readme.py",
    "tests/test_docs.py",
    "tests/train/test_models.py",
    "tests/train/test_data.py",
    "tests/train/test_resume.py",
    "tests/train/test_bad_input.py",
    "tests/distributed/test_two_processes.py",
}


def sources(root: Path, *folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Every Python file below these folders: its path from the root, and its syntax tree."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix(), ast.parse(path.read_text())


def place(path: str) -> str:
    """The part of the library that a file belongs to: a key of FLOORS."""
    return path.split("/")[1].removesuffix(".py")


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the full name of every module imported, and of every name imported from the door."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            parts = [f"{module}.{alias.name}" for alias in node.names] if module == "jaxcompress" else [module]
            yield from ((node.lineno, part) for part in parts)


def target(root: Path, name: str) -> str:
    """The part of the library that a name like ``jaxcompress.ops.trees`` lies in; a plain function is at the door."""
    part = [*name.split("."), ""][1]
    home = root / "jaxcompress" / part
    return part if part in FLOORS or (part and (home.exists() or home.with_suffix(".py").exists())) else "__init__"


def library_imports(root: Path) -> Iterator[tuple[str, int, str]]:
    """Every import of one part of the library by another: file, line, full name."""
    for path, tree in sources(root, "jaxcompress"):
        for line, name in imported(tree):
            if name.split(".")[0] in ("jaxcompress", ""):
                yield path, line, name


def upward_imports(root: Path) -> list[str]:
    """Imports that do not go to a lower floor and do not stay inside one package."""
    found = []
    for path, line, name in library_imports(root):
        here, there = place(path), target(root, name)
        if unknown := {here, there} - FLOORS.keys():
            found.append(f"{path}:{line}: {unknown.pop()} has no floor")
        elif name.startswith("."):
            found.append(f"{path}:{line}: write the import of {name} in full")
        elif (path, there) not in UPWARD_BY_DESIGN and FLOORS[there] >= FLOORS[here]:
            beside = here == there or (FLOORS[here] == FLOORS[there] == 0)
            found += [] if beside else [f"{path}:{line}: {here} imports {there}, which is not below it"]
    return found


def schemes_that_know_schemes(root: Path) -> list[str]:
    """Compressors, memories and routes that import one another."""
    return [
        f"{path}:{line}: {path} imports {name}; schemes know each other only as `inner`"
        for path, line, name in library_imports(root)
        if place(path) in SCHEMES and target(root, name) in SCHEMES
    ]


def network_outside_collectives(root: Path) -> list[str]:
    """Uses of JAX's collectives outside the one place for them."""
    found = []
    for path, tree in sources(root, "jaxcompress"):
        if place(path) == "collectives" or path in NETWORK_BY_DESIGN:
            continue
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("lax", "jax.lax", "_compat"):
                names = [node.attr]
            found += [f"{path}:{node.lineno}: {name} belongs in collectives/" for name in COLLECTIVES & set(names)]
    return found


def maxima_of_floats(root: Path) -> list[str]:
    """Uses of ``jnp.max``, which loses NaN on CPUs, where the entries might be floats."""
    return [
        f"{path}:{node.lineno}: jnp.max loses NaN on CPUs; ops/magnitude.py does not"
        for path, tree in sources(root, "jaxcompress")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("jnp.max", "jnp.amax", "jnp.nanmax")
        if path not in MAXIMA_BY_DESIGN
    ]


def packages_with_code(root: Path) -> list[str]:
    """Sub-packages whose ``__init__.py`` holds more than a docstring: a name there would hide a module."""
    return [
        f"{path}: holds more than one docstring"
        for path, tree in sources(root, "jaxcompress")
        if path.endswith("/__init__.py") and path != "jaxcompress/__init__.py"
        if len(tree.body) != 1 or ast.get_docstring(tree) is None
    ]


def door_names(root: Path) -> tuple[list[str], set[str]]:
    """What the door lists in ``__all__``, and what it imports."""
    listed: list[str] = []
    bound: set[str] = set()
    for node in ast.parse((root / "jaxcompress/__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = ast.literal_eval(node.value)
    return listed, bound


def untidy_door(root: Path) -> list[str]:
    """Public names that stand twice, that do not exist, or that were imported and not listed."""
    listed, bound = door_names(root)
    twice = [f"{name} stands twice in __all__" for name in sorted(set(listed)) if listed.count(name) > 1]
    missing = [f"{name} is in __all__ and is not imported" for name in sorted(set(listed) - bound)]
    return twice + missing + [f"{name} is imported and not in __all__" for name in sorted(bound - set(listed))]


def ways_past_the_door(root: Path) -> list[str]:
    """Imports by the training program of anything but the library's public names."""
    public, _ = door_names(root)
    return [
        f"{path}:{line}: train imports {name}, which is not at the door"
        for path, tree in sources(root, "train")
        for line, name in imported(tree)
        if name.split(".")[0] == "jaxcompress" and name.removeprefix("jaxcompress").strip(".") not in ["", *public]
    ]


def undocumented(root: Path) -> list[str]:
    """Public modules, classes, functions and methods without a docstring."""
    found = []
    for path, tree in sources(root, "jaxcompress", "train"):
        found += [] if ast.get_docstring(tree) else [f"{path}: the file does not say its idea"]
        methods = [node for each in tree.body if isinstance(each, ast.ClassDef) for node in each.body]
        for node in [*tree.body, *methods]:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found += [] if ast.get_docstring(node) else [f"{path}:{node.lineno}: {node.name} has no docstring"]
    return found


def long_files(root: Path) -> list[str]:
    """Files that hold more than one idea, to judge by their length."""
    lengths = {path: len((root / path).read_text().splitlines()) for path, _ in sources(root, "jaxcompress", "train")}
    return [f"{path}: {lines} lines, more than {MAX_LINES}" for path, lines in lengths.items() if lines > MAX_LINES]


def mirrorless_tests(root: Path) -> list[str]:
    """Test files that mirror no source file, name for name."""
    found = []
    for path, _ in sources(root, "tests"):
        folder, _, name = path.removeprefix("tests").strip("/").rpartition("/")
        if not name.startswith("test_") or path in TESTS_WITHOUT_A_FILE:
            continue
        source = Path(folder, name.removeprefix("test_"))
        home = root if folder.split("/")[0] in ("train", "benchmarks") else root / "jaxcompress"
        found += [] if (home / source).exists() else [f"{path}: there is no {source} for it to test"]
    return found


# Each check, and a tree that breaks it: the files (their other lines are filled in), and what must be said.
BROKEN = [
    (upward_imports, {"jaxcompress/ops/a.py": "from jaxcompress.compressors.b import c"}, "ops imports compressors"),
    (upward_imports, {"jaxcompress/base.py": "import jaxcompress.ops.a", "jaxcompress/ops/a.py": ""}, "imports ops"),
    (upward_imports, {"jaxcompress/transform.py": "from jaxcompress.stats import a"}, "transform imports stats"),
    (upward_imports, {"jaxcompress/feedback/a.py": "from jaxcompress import dense"}, "feedback imports __init__"),
    (upward_imports, {"jaxcompress/ops/a.py": "def f():\n    import jaxcompress"}, "ops imports __init__"),
    (upward_imports, {"jaxcompress/new/a.py": "import jaxcompress.base"}, "new has no floor"),
    (upward_imports, {"jaxcompress/ops/a.py": "from .b import c"}, "in full"),
    (schemes_that_know_schemes, {"jaxcompress/feedback/a.py": "import jaxcompress.compressors.b"}, "only as `inner`"),
    (schemes_that_know_schemes, {"jaxcompress/compressors/a.py": "import jaxcompress.compressors.b"}, "only as"),
    (network_outside_collectives, {"jaxcompress/feedback/a.py": "x = lax.psum(1, 'data')"}, "psum belongs"),
    (network_outside_collectives, {"jaxcompress/ops/a.py": "x = jax.lax.all_to_all"}, "all_to_all belongs"),
    (network_outside_collectives, {"jaxcompress/ops/a.py": "from jax.lax import ppermute as p"}, "ppermute belongs"),
    (network_outside_collectives, {"jaxcompress/a.py": "from jaxcompress._compat import all_gather"}, "all_gather"),
    (maxima_of_floats, {"jaxcompress/ops/a.py": "x = jnp.max(y)"}, "loses NaN"),
    (packages_with_code, {"jaxcompress/ops/__init__.py": "import os"}, "more than one docstring"),
    (untidy_door, {"jaxcompress/__init__.py": "from a import b\n__all__ = ['b', 'b']"}, "b stands twice"),
    (untidy_door, {"jaxcompress/__init__.py": "__all__ = ['b']"}, "b is in __all__ and is not imported"),
    (untidy_door, {"jaxcompress/__init__.py": "from a import b\n__all__ = []"}, "b is imported and not in __all__"),
    (ways_past_the_door, {"train/a.py": "from jaxcompress.base import Reduced"}, "jaxcompress.base"),
    (ways_past_the_door, {"train/a.py": "from jaxcompress import stats"}, "jaxcompress.stats"),
    (undocumented, {"jaxcompress/a.py": "def f(): pass"}, "f has no docstring"),
    (undocumented, {"train/a.py": "class A:\n    'Doc.'\n    def f(self): pass"}, "f has no docstring"),
    (long_files, {"train/a.py": "\n" * MAX_LINES}, "more than 220"),
    (mirrorless_tests, {"tests/ops/test_a.py": ""}, "no ops/a.py"),
    (mirrorless_tests, {"tests/train/test_a.py": ""}, "no train/a.py"),
]
CHECKS = list(dict.fromkeys(check for check, _, _ in BROKEN))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_repository_keeps_the_rule(check):
    assert check(REPOSITORY) == []


@pytest.mark.parametrize(("check", "files", "words"), BROKEN)
def test_the_check_finds_what_breaks_its_rule(check, files, words, tmp_path):
    for path, text in {"jaxcompress/__init__.py": "", **files}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f'"""A file."""\n{text}\n')
    (found,) = [problem for problem in check(tmp_path) if words in problem]
    assert found


def test_a_tree_without_faults_is_let_through(tmp_path):
    files = {
        "jaxcompress/__init__.py": "from jaxcompress.compressors.a import a\n__all__ = ['a']",
        "jaxcompress/ops/a.py": "import jaxcompress.base\nfrom jaxcompress.ops.b import c",
        "jaxcompress/collectives/a.py": "y = lax.psum(1, 'data')",
        "jaxcompress/compressors/a.py": "from jaxcompress.ops.a import x\ndef _f(): pass",
        "jaxcompress/compressors/__init__.py": "",
        "train/a.py": "import jaxcompress\nfrom jaxcompress import a",
        "tests/compressors/test_a.py": "",
        "tests/train/test_a.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f'"""A file."""\n{text}\n')
    assert [problem for check in CHECKS for problem in check(tmp_path)] == []


def test_every_public_name_exists():
    assert [name for name in jaxcompress.__all__ if not hasattr(jaxcompress, name)] == []


def test_every_exception_is_still_needed():
    files = [path for path, _ in UPWARD_BY_DESIGN] + [*NETWORK_BY_DESIGN, *MAXIMA_BY_DESIGN, *TESTS_WITHOUT_A_FILE]
    assert [path for path in files if not (REPOSITORY / path).exists()] == []
