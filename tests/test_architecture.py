"""The layers of the repository: who may import whom, who may use collectives, what files document.

Each check reads source with `ast` and returns what it finds wrong, as text. It runs on this
repository, where it must find nothing, and on a small tree that breaks its rule, where it must not
miss it.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import jaxcompress

REPOSITORY = Path(__file__).parents[1]
MAX_LINES = 260
MAX_LINES_OF_BASE = 130
MAX_FILES_OF_OPS = 16

# Imports go to a lower layer only, or stay inside one package.
LAYERS = {
    "base": 0,
    "_compat": 0,
    "ops": 1,
    "schedules": 1,
    "rules": 2,
    "collectives": 2,
    "routing": 3,
    "compressors": 4,
    "feedback": 4,
    "transform_checks": 4,
    "transform": 5,
    "apply_if_all_finite": 5,
    "distributed": 6,
    "profiling": 7,
    "optimizers": 7,
    "periods": 7,
    "planning": 8,
    "contrib": 8,
    "constructors": 9,
    "notation_reader": 10,
    "notation": 11,
    "__init__": 12,
}
# Below the schemes that are made of them, in the packages of the schemes.
SHARED_BY_SCHEMES = {
    "compressors/builders",
    "feedback/memories",
    "feedback/shifts",
    "feedback/state_quantization",
    "contrib/sampling",
}
SCHEMES = {"compressors", "feedback", "contrib"}

UPWARD_BY_DESIGN = {
    # It finds what the public API exports, which it imports once a text is read.
    ("jaxcompress/constructors.py", "__init__"),
}

COLLECTIVES = {
    *(
        "psum",
        "pmean",
        "pmax",
        "pmin",
        "psum_scatter",
        "all_gather",
        "all_to_all",
        "ragged_all_to_all",
    ),
    *("ppermute", "pshuffle", "pswapaxes", "pbroadcast", "reduce_scatter"),
    *("sum_over_pairs", "gather_words", "send_rows"),
}
# Chooses between two modules that use one.
COLLECTIVES_BY_DESIGN = {"jaxcompress/collectives/gathered.py"}
NETWORK_BY_DESIGN = {
    "jaxcompress/_compat.py": "spells a gather and a sum that `lax` has not",
}

MAXIMA_BY_DESIGN = {
    "jaxcompress/ops/quantization.py": "puts infinity for what a maximum loses",
    "jaxcompress/ops/radix_select.py": "compares integers",
}

# It writes the notation.
EXPRESSIONS_BY_DESIGN = {"jaxcompress/base.py"}

# Packages whose names are imported from the package itself.
PACKAGES_WITH_NAMES = {"jaxcompress/__init__.py", "jaxcompress/contrib/__init__.py"}

# A file stem names one thing, but for these: in every package, or in every benchmark.
COMMON_STEMS = {"__init__", "__main__", "conftest"}
ROLES_OF_BENCHMARKS = {
    *("expressions", "measure", "methods", "plot", "runs", "table"),
    *("jax_worker", "torch_worker", "worker"),
}

# A name for one expression of other schemes.
NAMED_EXPRESSIONS = {
    "jaxcompress/compressors/quantisers/eden.py",
    "jaxcompress/compressors/sparsifiers/global_top_k.py",
}

# Tests of what no single file holds.
TESTS_WITHOUT_A_FILE = {
    "tests/test_laws.py",
    "tests/test_adversarial.py",
    "tests/test_tracing.py",
    "tests/test_x64_and_rbg.py",
    "tests/test_properties.py",
    "tests/test_architecture.py",
    "tests/test_quoted_numbers.py",
    "tests/test_optax.py",
    "tests/test_optimizers_matrix.py",
    "tests/test_readme.py",
    "tests/test_docs.py",
    "tests/test_package.py",
    "tests/test_examples.py",
    "tests/test_notebooks.py",
    "tests/test_gallery.py",
    "tests/test_troubleshooting.py",
    "tests/train/test_models.py",
    "tests/train/test_data.py",
    "tests/train/test_resume.py",
    "tests/train/test_bad_input.py",
    "tests/train/test_periods.py",
    "tests/periods/test_trajectories.py",
    "tests/periods/test_memory_of_drifts.py",
    "tests/distributed/test_two_processes.py",
    "tests/faults/test_faults.py",
    "tests/test_deploy.py",
    "tests/distributed/test_shards_laws.py",
}


def sources(root: Path, *folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Every Python file below these folders: its path from the root, and its syntax tree."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix(), ast.parse(path.read_text())


def place(path: str) -> str:
    """The part of the library that a file belongs to: a key of LAYERS."""
    return path.split("/")[1].removesuffix(".py")


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the full name of every module imported, and of every public
    name imported from the library.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            parts = (
                [f"{module}.{alias.name}" for alias in node.names]
                if module == "jaxcompress"
                else [module]
            )
            yield from ((node.lineno, part) for part in parts)


def target(root: Path, name: str) -> str:
    """The part of the library that a name like ``jaxcompress.ops.trees`` lies in; a plain function
    is public.
    """
    part = [*name.split("."), ""][1]
    home = root / "jaxcompress" / part
    return (
        part
        if part in LAYERS or (part and (home.exists() or home.with_suffix(".py").exists()))
        else "__init__"
    )


def library_imports(root: Path) -> Iterator[tuple[str, int, str]]:
    """Every import of one part of the library by another: file, line, full name."""
    for path, tree in sources(root, "jaxcompress"):
        for line, name in imported(tree):
            if name.split(".")[0] in ("jaxcompress", ""):
                yield path, line, name


def upward_imports(root: Path) -> list[str]:
    """Imports that do not go to a lower layer and do not stay inside one package."""
    found = []
    for path, line, name in library_imports(root):
        here, there = place(path), target(root, name)
        if unknown := {here, there} - LAYERS.keys():
            found.append(f"{path}:{line}: {unknown.pop()} has no layer")
        elif name.startswith("."):
            found.append(f"{path}:{line}: write the import of {name} in full")
        elif (path, there) not in UPWARD_BY_DESIGN and LAYERS[there] >= LAYERS[here]:
            beside = here == there or (LAYERS[here] == LAYERS[there] == 0)
            found += (
                [] if beside else [f"{path}:{line}: {here} imports {there}, which is not below it"]
            )
    return found


def schemes_that_know_schemes(root: Path) -> list[str]:
    """Compressors and memories that import one another."""
    return [
        f"{path}:{line}: {path} imports {name}; schemes know each other only as `inner`"
        for path, line, name in library_imports(root)
        if place(path) in SCHEMES and target(root, name) in SCHEMES
        if not path.endswith("/__init__.py") and path not in NAMED_EXPRESSIONS
        if "/".join(name.split(".")[1:3]) not in SHARED_BY_SCHEMES
    ]


def collectives_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the name of every collective that a file uses or imports."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in (
            "lax",
            "jax.lax",
            "_compat",
        ):
            names = [node.attr]
        yield from ((node.lineno, name) for name in COLLECTIVES & set(names))


def network_outside_collectives(root: Path) -> list[str]:
    """Uses of JAX's collectives outside the one place for them."""
    return [
        f"{path}:{line}: {name} belongs in collectives/"
        for path, tree in sources(root, "jaxcompress")
        if place(path) != "collectives" and path not in NETWORK_BY_DESIGN
        for line, name in collectives_in(tree)
    ]


def collectives_without_network(root: Path) -> list[str]:
    """Modules of collectives/ that use no collective."""
    return [
        f"{path}: uses no collective, so it belongs elsewhere"
        for path, tree in sources(root, "jaxcompress/collectives")
        if not path.endswith("/__init__.py") and path not in COLLECTIVES_BY_DESIGN
        if not list(collectives_in(tree))
    ]


def decisions_by_text(root: Path) -> list[str]:
    """Code that decides by the text of a compressor, where `Compressor.call` and `walk` say it."""
    found = []
    for path, tree in sources(root, "jaxcompress", "train", "benchmarks"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "expression":
                found.append(f"{path}:{node.lineno}: .expression is no longer kept; use .call")
            texts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in ("startswith", "endswith"):
                texts = [called.value]
            if path not in EXPRESSIONS_BY_DESIGN and any(map(is_expression, texts)):
                found.append(f"{path}:{node.lineno}: decides by a text; use .call or walk")
    return found


def is_expression(node: ast.AST) -> bool:
    """Whether `node` makes the text of a compressor."""
    name = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
    return name in ("repr", "unparse", "notation_of")


def thing(path: str) -> str:
    """What a file is about: its own path; of a test, the path of the file it tests."""
    folder, _, name = path.rpartition("/")
    if not name.startswith("test_") or path in TESTS_WITHOUT_A_FILE:
        return path
    folder = folder.removeprefix("tests").strip("/")
    home = "" if folder.split("/")[0] in ("train", "benchmarks") else "jaxcompress"
    return "/".join(part for part in (home, folder, name.removeprefix("test_")) if part)


def repeated_stems(root: Path) -> list[str]:
    """File stems that name more than one thing in the repository, tests without their prefix."""
    things: dict[str, set[str]] = {}
    for path, _ in sources(root, "jaxcompress", "train", "benchmarks", "tests"):
        stem = Path(path).stem.removeprefix("test_")
        is_role = stem in ROLES_OF_BENCHMARKS and thing(path).startswith("benchmarks/")
        if stem not in COMMON_STEMS and not is_role:
            things.setdefault(stem, set()).add(thing(path))
    return [
        f"{stem} names {len(paths)} things: {', '.join(sorted(paths))}"
        for stem, paths in things.items()
        if len(paths) > 1
    ]


def crowded_ops(root: Path) -> list[str]:
    """More files in ops/ than can be overlooked."""
    count = len(list(sources(root, "jaxcompress/ops")))
    return [] if count <= MAX_FILES_OF_OPS else [f"ops/ has {count} files, at most 16 are allowed"]


def maxima_of_floats(root: Path) -> list[str]:
    """Uses of ``jnp.max``, which loses NaN on CPUs, where the entries might be floats."""
    return [
        f"{path}:{node.lineno}: jnp.max loses NaN on CPUs; ops/quantization.py does not"
        for path, tree in sources(root, "jaxcompress")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("jnp.max", "jnp.amax", "jnp.nanmax")
        if path not in MAXIMA_BY_DESIGN
    ]


def packages_with_code(root: Path) -> list[str]:
    """Sub-packages whose ``__init__.py`` holds more than a docstring: a name there would hide a
    module.
    """
    return [
        f"{path}: holds more than one docstring"
        for path, tree in sources(root, "jaxcompress")
        if path.endswith("/__init__.py") and path not in PACKAGES_WITH_NAMES
        if len(tree.body) != 1 or ast.get_docstring(tree) is None
    ]


def public_names(root: Path, path: str = "jaxcompress/__init__.py") -> tuple[list[str], set[str]]:
    """What the public API lists in ``__all__``, and what it imports."""
    listed: list[str] = []
    bound: set[str] = set()
    for node in ast.parse((root / path).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = ast.literal_eval(node.value)
    return listed, bound


def untidy_public_api(root: Path) -> list[str]:
    """Public names that stand twice, that do not exist, or that were imported and not listed."""
    found = []
    for path in sorted(path for path in PACKAGES_WITH_NAMES if (root / path).exists()):
        listed, bound = public_names(root, path)
        twice = {name for name in listed if listed.count(name) > 1}
        for names, fault in (
            (twice, "stands twice in __all__"),
            (set(listed) - bound, "is in __all__ and is not imported"),
            (bound - set(listed), "is imported and not in __all__"),
        ):
            found += [f"{path}: {name} {fault}" for name in sorted(names)]
    return found


def imports_past_the_public_api(root: Path) -> list[str]:
    """Imports by the training program of anything but the library's public names."""
    public, _ = public_names(root)
    return [
        f"{path}:{line}: train imports {name}, which is not public"
        for path, tree in sources(root, "train")
        for line, name in imported(tree)
        if name.split(".")[0] == "jaxcompress"
        and name.removeprefix("jaxcompress").strip(".") not in ["", *public]
    ]


def undocumented(root: Path) -> list[str]:
    """Public modules, classes, functions and methods without a docstring."""
    found = []
    for path, tree in sources(root, "jaxcompress", "train"):
        found += [] if ast.get_docstring(tree) else [f"{path}: the file does not say its idea"]
        methods = [
            node for each in tree.body if isinstance(each, ast.ClassDef) for node in each.body
        ]
        for node in [*tree.body, *methods]:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found += (
                    []
                    if ast.get_docstring(node)
                    else [f"{path}:{node.lineno}: {node.name} has no docstring"]
                )
    return found


def long_files(root: Path) -> list[str]:
    """Files that hold more than one idea, to judge by their length."""
    lengths = {
        path: len((root / path).read_text().splitlines())
        for path, _ in sources(root, "jaxcompress", "train")
    }
    most = {"jaxcompress/base.py": MAX_LINES_OF_BASE}
    return [
        f"{path}: {lines} lines, more than {most.get(path, MAX_LINES)}"
        for path, lines in lengths.items()
        if lines > most.get(path, MAX_LINES)
    ]


def unchecked_shapes(root: Path) -> list[str]:
    """Files whose annotations have shapes that pytest does not check."""
    options = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    arguments = options["tool"]["pytest"]["ini_options"]["addopts"]
    option = "--jaxtyping-packages="
    (packages,) = (one.removeprefix(option) for one in arguments if one.startswith(option))
    checked = tuple(f"{name}." for name in packages.split(","))
    return [
        f"{path}:{line}: {option}… of pyproject.toml lacks this module"
        for path, tree in sources(root, "jaxcompress")
        for line, name in imported(tree)
        if name == "jaxtyping"
        and not f"{path.removesuffix('.py').replace('/', '.')}.".startswith(checked)
    ]


def mirrorless_tests(root: Path) -> list[str]:
    """Test files that mirror no source file, name for name."""
    found = []
    for path, _ in sources(root, "tests"):
        folder, _, name = path.removeprefix("tests").strip("/").rpartition("/")
        if not name.startswith("test_") or path in TESTS_WITHOUT_A_FILE:
            continue
        source = Path(folder, name.removeprefix("test_"))
        home = root if folder.split("/")[0] in ("train", "benchmarks") else root / "jaxcompress"
        found += (
            [] if (home / source).exists() else [f"{path}: there is no {source} for it to test"]
        )
    return found


# Each check, and a tree that breaks it: the files (their other lines are filled in), and what must
# be said.
BROKEN = [
    (
        upward_imports,
        {"jaxcompress/ops/a.py": "from jaxcompress.compressors.b import c"},
        "ops imports compressors",
    ),
    (
        upward_imports,
        {"jaxcompress/base.py": "import jaxcompress.ops.a", "jaxcompress/ops/a.py": ""},
        "imports ops",
    ),
    (
        upward_imports,
        {"jaxcompress/transform.py": "from jaxcompress.profiling import a"},
        "transform imports profiling",
    ),
    (
        upward_imports,
        {"jaxcompress/feedback/a.py": "from jaxcompress import dense"},
        "feedback imports __init__",
    ),
    (
        upward_imports,
        {"jaxcompress/ops/a.py": "def f():\n    import jaxcompress"},
        "ops imports __init__",
    ),
    (upward_imports, {"jaxcompress/new/a.py": "import jaxcompress.base"}, "new has no layer"),
    (upward_imports, {"jaxcompress/ops/a.py": "from .b import c"}, "in full"),
    (
        schemes_that_know_schemes,
        {"jaxcompress/feedback/a.py": "import jaxcompress.compressors.b"},
        "only as `inner`",
    ),
    (
        schemes_that_know_schemes,
        {"jaxcompress/compressors/a.py": "import jaxcompress.compressors.b"},
        "only as",
    ),
    (
        network_outside_collectives,
        {"jaxcompress/feedback/a.py": "x = lax.psum(1, 'data')"},
        "psum belongs",
    ),
    (
        network_outside_collectives,
        {"jaxcompress/ops/a.py": "x = jax.lax.all_to_all"},
        "all_to_all belongs",
    ),
    (
        network_outside_collectives,
        {"jaxcompress/ops/a.py": "from jax.lax import ppermute as p"},
        "ppermute belongs",
    ),
    (
        network_outside_collectives,
        {"jaxcompress/a.py": "from jaxcompress._compat import all_gather"},
        "all_gather",
    ),
    (maxima_of_floats, {"jaxcompress/ops/a.py": "x = jnp.max(y)"}, "loses NaN"),
    (packages_with_code, {"jaxcompress/ops/__init__.py": "import os"}, "more than one docstring"),
    (
        untidy_public_api,
        {"jaxcompress/__init__.py": "from a import b\n__all__ = ['b', 'b']"},
        "b stands twice",
    ),
    (
        untidy_public_api,
        {"jaxcompress/__init__.py": "__all__ = ['b']"},
        "b is in __all__ and is not imported",
    ),
    (
        untidy_public_api,
        {"jaxcompress/__init__.py": "from a import b\n__all__ = []"},
        "b is imported and not in __all__",
    ),
    (
        imports_past_the_public_api,
        {"train/a.py": "from jaxcompress.base import Reduced"},
        "jaxcompress.base",
    ),
    (
        imports_past_the_public_api,
        {"train/a.py": "from jaxcompress import profiling"},
        "jaxcompress.profiling",
    ),
    (undocumented, {"jaxcompress/a.py": "def f(): pass"}, "f has no docstring"),
    (
        undocumented,
        {"train/a.py": "class A:\n    'Doc.'\n    def f(self): pass"},
        "f has no docstring",
    ),
    (long_files, {"train/a.py": "\n" * MAX_LINES}, "more than 260"),
    (long_files, {"jaxcompress/base.py": "\n" * MAX_LINES_OF_BASE}, "more than 130"),
    (
        crowded_ops,
        {f"jaxcompress/ops/{name}.py": "" for name in "abcdefghijklmnopq"},
        "ops/ has 17 files",
    ),
    (
        collectives_without_network,
        {"jaxcompress/collectives/a.py": "x = lax.axis_index('data')"},
        "collectives/a.py: uses no collective",
    ),
    (
        decisions_by_text,
        {"train/a.py": "x = one.expression"},
        "train/a.py:2: .expression is no longer kept",
    ),
    (
        decisions_by_text,
        {"jaxcompress/a.py": "x = 'top_k(' in repr(y)"},
        "jaxcompress/a.py:2: decides by a text",
    ),
    (
        decisions_by_text,
        {"benchmarks/a.py": "x = jaxcompress.unparse(y).startswith('top_k')"},
        "benchmarks/a.py:2: decides by a text",
    ),
    (
        repeated_stems,
        {"jaxcompress/ops/a.py": "", "train/data/a.py": ""},
        "a names 2 things: jaxcompress/ops/a.py, train/data/a.py",
    ),
    (
        repeated_stems,
        {"jaxcompress/ops/a.py": "", "tests/feedback/test_a.py": ""},
        "a names 2 things: jaxcompress/feedback/a.py, jaxcompress/ops/a.py",
    ),
    (
        repeated_stems,
        {"benchmarks/b/plot.py": "", "train/plot.py": "", "jaxcompress/plot.py": ""},
        "plot names 2 things: jaxcompress/plot.py, train/plot.py",
    ),
    (
        untidy_public_api,
        {"jaxcompress/contrib/__init__.py": "__all__ = ['b']"},
        "contrib/__init__.py: b is in __all__ and is not imported",
    ),
    (
        schemes_that_know_schemes,
        {"jaxcompress/contrib/a.py": "import jaxcompress.contrib.b"},
        "only as `inner`",
    ),
    (
        unchecked_shapes,
        {"jaxcompress/contrib/a.py": "from jaxtyping import Array"},
        "lacks this module",
    ),
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
        "jaxcompress/__init__.py": "from jaxcompress.compressors.c import a\n__all__ = ['a']",
        "jaxcompress/ops/a.py": "import jaxcompress.base\nfrom jaxcompress.ops.b import c",
        "jaxcompress/collectives/b.py": "y = lax.psum(1, 'data')",
        "jaxcompress/compressors/c.py": "from jaxcompress.ops.a import x\ndef _f(): pass",
        "jaxcompress/compressors/d.py": "from jaxcompress.compressors.builders.e import f",
        "jaxcompress/compressors/__init__.py": "",
        "jaxcompress/contrib/__init__.py": "from jaxcompress.contrib.g import g\n__all__ = ['g']",
        "jaxcompress/contrib/g.py": "x = 1",
        "benchmarks/h/plot.py": "",
        "benchmarks/h/__main__.py": "",
        "benchmarks/i/plot.py": "x = repr(y)",
        "tests/benchmarks/h/test_plot.py": "",
        "train/j.py": "import jaxcompress\nfrom jaxcompress import a",
        "tests/compressors/test_c.py": "",
        "tests/train/test_j.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f'"""A file."""\n{text}\n')
    assert [problem for check in CHECKS for problem in check(tmp_path)] == []


def test_every_public_name_exists():
    assert [name for name in jaxcompress.__all__ if not hasattr(jaxcompress, name)] == []


# Sets of exceptions, and the check that they are of.
EXCEPTIONS = {
    "UPWARD_BY_DESIGN": upward_imports,
    "SHARED_BY_SCHEMES": schemes_that_know_schemes,
    "NAMED_EXPRESSIONS": schemes_that_know_schemes,
    "COLLECTIVES_BY_DESIGN": collectives_without_network,
    "NETWORK_BY_DESIGN": network_outside_collectives,
    "MAXIMA_BY_DESIGN": maxima_of_floats,
    "EXPRESSIONS_BY_DESIGN": decisions_by_text,
    "PACKAGES_WITH_NAMES": packages_with_code,
    "TESTS_WITHOUT_A_FILE": mirrorless_tests,
}


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_every_exception_is_still_needed(name, monkeypatch):
    exceptions = globals()[name]
    monkeypatch.setitem(globals(), name, type(exceptions)())
    found = EXCEPTIONS[name](REPOSITORY)
    paths = [one[0] if isinstance(one, tuple) else one for one in exceptions]
    # A package is named as a file or as an import.
    spelled = {path: (path, path.replace("/", ".")) for path in paths}
    unused = [
        path
        for path, names in spelled.items()
        if not any(name in problem for name in names for problem in found)
    ]
    assert unused == []
