"""Writes the pages that follow from the code: sections from docstrings, a table of pairs that is
made by building each pair, the differences of the examples, and the training program's options.

python docs/generate.py            all pages
python docs/generate.py --check    exit code 1 if one of them would change
"""

import ast
import dataclasses
import difflib
import inspect
import itertools
import json
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jaxcompress

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # `train` is not installed

from train.config import Config  # noqa: E402
from train.help_topics import TOPICS  # noqa: E402

# The packages of a family. Sections keep the order of `__all__`.
FAMILIES = {
    "Sparsifiers": ("compressors.sparsifiers",),
    "Quantisers": ("compressors.quantisers",),
    "Low rank": ("compressors.low_rank",),
    "Memories": ("feedback",),
    "Routes": ("collectives",),
    "Choices": ("routing", "optimizers", "profiling"),
    "Contrib": ("contrib",),
}
OPTIMIZERS = (
    "dgc",
    "onebit_adam",
    "scale_by_onebit_adam",
    "demo",
    "clip_by_local_norm",
    "add_decayed_weights_with_momentum",
)
CONTRIB_OPTIMIZERS = (
    "onebit_lamb",
    "scale_by_onebit_lamb",
    "zero_one_adam",
    "scale_by_zero_one_adam",
)
# Everything around a compressor, from the outside of a program to the inside of its step.
REFERENCE = {
    "Links of the chain": ("compress", "apply_if_all_finite", "skipped_steps"),
    "Workers": (
        "initialize_processes",
        "virtual_cpu_workers",
        "data_mesh",
        "node_mesh",
        "hybrid_mesh",
        "VirtualMesh",
    ),
    "Sharded models": ("on_shards", "PerShard", "state_shardings"),
    "Placement": (
        "init_state",
        "replicate",
        "shard_batch",
        "reshard_workers",
        "place_state",
        "error_memory",
    ),
    "The step": (
        "make_train_step",
        "local_value_and_grad",
        "worker_key",
        "state_specs",
        "squeeze_worker_axis",
        "expand_worker_axis",
    ),
    "Planning": ("plan", "Plan", "measure", "ideal_links"),
    "Periods": (
        "local_updates",
        "local_sgd",
        "diloco",
        "sparse_loco",
        "mu_loco",
        "streaming",
        "gossip",
        "no_loco",
        "pair_mean",
        "power_gossip",
        "make_local_step",
        "make_flush",
        "make_streaming_average",
        "rows_of_workers",
        "mean_over_workers",
        "worker_params",
    ),
    "Checks and counts": (
        "assert_equal_across_processes",
        "numeric_settings",
        "assert_replicas_equal",
        "Watchdog",
        "is_connection_error",
        "traffic",
        "traffic_of_jaxpr",
        "traffic_of_hlo",
        "monitor_metrics",
        "measure_bandwidth",
    ),
    "Levels": (
        "accordion",
        "gradient_norm",
        "gain",
        "bandwidth",
        "accuracy",
        "schedule",
        "levels",
        "sensitivity",
    ),
    "Labels and schedules": (
        "by_path",
        "by_shape",
        "by_size",
        "norms_and_biases",
        "embeddings",
        "first_and_last",
        "first_label",
        "warmup",
    ),
    "Compressors as text": ("parse", "unparse", "walk"),
    "Building compressors": ("gathered", "sparse", "sparse_rows", "linear", "parseable"),
}
# One of each kind, as the outer and as the inner one.
OUTER = (
    "top_k(0.01, inner={})",
    "block_top_k(0.01, inner={})",
    "block_sparse(0.01, inner={})",
    "random_k(0.01, inner={})",
    "shared_top_k(0.01, inner={})",
    "power_sgd(2, inner={})",
    "acp_sgd(2, inner={})",
    "rotated({})",
    "dct({})",
    "one_phase({})",
    "two_phase({})",
    "hierarchical(dense(), {})",
    "whole_model({})",
    "control_variate({}, 0.1)",
    "error_feedback({})",
    "momentum_correction({})",
    "momentum_correction({}, masking=False)",
    "ef21({})",
    "partition({{'matrix': {}, 'rest': dense()}}, by_shape())",
    "switch(warmup(9), dense(), {})",
    "adaptive(gain(0.5), dense(), {})",
    "monitor({})",
)
INNER = (
    "dense()",
    "top_k(0.01)",
    "block_top_k(0.01)",
    "global_top_k(0.01)",
    "random_k(0.01)",
    "random_k(0.01, rescale=True)",
    "block_sparse(0.01)",
    "shared_top_k(0.01)",
    "qsgd(4)",
    "qsgd(2)",
    "terngrad()",
    "natural()",
    "int8()",
    "float8()",
    "cast('bfloat16')",
    "sign()",
    "rotated(qsgd(4))",
    "eden(4)",
    "power_sgd(2)",
    "acp_sgd(2)",
    "two_phase(qsgd(4))",
    "error_feedback(top_k(0.01))",
    "momentum_correction(top_k(0.01))",
    "control_variate(qsgd(2), 0.1)",
)
# Folders of examples/, in the order of the page.
EXAMPLES = {
    "plain": "Plain functions, `jax.jit` and Orbax",
    "nnx": "Flax NNX, with BatchNorm and Dropout",
    "linen": "Flax Linen, with BatchNorm and Dropout",
    "hosts": "Several hosts, each with rows of its own",
    "own_step": "A step of one's own by `jax.shard_map`, with its bytes and what is unsent",
    "fsdp": "A transformer sharded over the devices of a node",
}
HEADINGS = r"(How it travels|Guarantees[^:\n]*|Args|Returns|Raises|Example|References):"


def exported(name: str) -> Any:
    """A public name of `jaxcompress` or of `jaxcompress.contrib`."""
    for module in (jaxcompress, jaxcompress.contrib):
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"docs/generate.py lists {name!r}, which jaxcompress does not export.")


def names(family: str) -> list[str]:
    """The public constructors of a `Compressor` in the packages of a family."""
    return [
        name
        for module in (jaxcompress, jaxcompress.contrib)
        for name in module.__all__
        if _makes_compressor(one := getattr(module, name))
        and any(f"{one.__module__}.".startswith(f"jaxcompress.{p}.") for p in FAMILIES[family])
    ]


def listed() -> set[str]:
    """Every name that has a section because this file lists it."""
    compressors = {name for family in FAMILIES for name in names(family)}
    references = {name for chosen in REFERENCE.values() for name in chosen}
    return compressors | references | {*OPTIMIZERS, *CONTRIB_OPTIMIZERS}


def _makes_compressor(one: Any) -> bool:
    return (
        getattr(one, "parseable", False)
        and inspect.signature(one).return_annotation is jaxcompress.Compressor
    )


def compressors_page() -> str:
    """Every compressor outside of contrib: what it does, its bits, its guarantee, its state, its
    source and its notation.
    """
    families = [family for family in FAMILIES if family != "Contrib"]
    parts = [
        "# Compressors",
        "Generated by `docs/generate.py` from the docstrings. Bits are of one worker's message;"
        " n is the size of an array. [choosing.md](choosing.md) helps to choose,"
        " [compositions.md](compositions.md) lists which pairs can be nested, and"
        " [contrib.md](contrib.md) has schemes of historical interest.",
        _overview(name for family in families for name in names(family)),
    ]
    for family in families:
        parts += [f"## {family}", *map(_section, names(family))]
    return _page(parts)


def contrib_page() -> str:
    """Every name of `jaxcompress.contrib`."""
    compressors = names("Contrib")
    parts = [
        "# Contrib",
        "Generated by `docs/generate.py` from the docstrings. These schemes are of historical"
        " interest, or for comparison. They satisfy the same laws and pass the same tests as all"
        " other schemes, but a new version may change or remove them. In Python, write"
        " `jaxcompress.contrib` before the name, as in `contrib.svd(2)`. In the text of a"
        " compressor, write the name alone, as in `error_feedback(svd(2))`.",
        _overview([*compressors, *CONTRIB_OPTIMIZERS]),
        "## Compressors",
        *map(_section, compressors),
        "## Optimizers",
        *map(_section, CONTRIB_OPTIMIZERS),
    ]
    return _page(parts)


def optimizers_page() -> str:
    """Every optimizer with a momentum before the average."""
    parts = [
        "# Optimizers",
        "Generated by `docs/generate.py` from the docstrings. Any optimizer of Optax can follow"
        " `compress`: `optax.chain(compress(error_feedback(top_k(0.01))), optax.adamw(1e-3))`. The"
        " optimizers of this page apply the momentum on each worker, before the average. So they"
        " replace `compress` in the chain. Put `dgc` before plain SGD. `onebit_adam` and `demo` are"
        " complete optimizers. `onebit_adam` sends its momentum, and averages it by the `compress`"
        " that you pass to it. You can put `clip_by_local_norm` before each of these optimizers."
        " `onebit_lamb` and `zero_one_adam` are"
        " in [contrib.md](contrib.md).",
        _overview(OPTIMIZERS),
        "## In detail",
        *map(_section, OPTIMIZERS),
    ]
    return _page(parts)


def reference_page() -> str:
    """Every other public function: chain, workers, placement, step, counts, labels, text."""
    other = [name for name in jaxcompress.__all__ if name not in listed()]
    other = [name for name in other if inspect.isfunction(getattr(jaxcompress, name))]
    sections = REFERENCE | ({"Other": tuple(other)} if other else {})
    parts = [
        "# Reference",
        "Generated by `docs/generate.py` from the docstrings: everything that a program calls"
        " around its compressor. The compressors are in [compressors.md](compressors.md).",
        _overview(name for chosen in sections.values() for name in chosen),
    ]
    for heading, chosen in sections.items():
        parts += [f"## {heading}", *map(_section, chosen)]
    return _page(parts)


def compositions_page() -> str:
    """Every pair of an outer and an inner compressor: it can be built, or what the error says."""
    reasons: dict[str, int] = {}
    rows = []
    for outer in OUTER:
        cells = [_outcome(outer, inner, reasons) for inner in INNER]
        rows.append(f"| `{outer.format('…')}` | " + " | ".join(cells) + " |")
    head = [
        "| outer \\ inner | " + " | ".join(f"`{inner}`" for inner in INNER) + " |",
        "|---" * (len(INNER) + 1) + "|",
    ]
    parts = [
        "# Compositions",
        "Generated by `docs/generate.py`, which builds every pair of an outer and an inner"
        " compressor. ✓: the pair can be built, and keeps the law"
        " `mean + pmean(residual) == pmean(updates)`. A number: building the pair raises a"
        " `ValueError`. The list below the table has its message, which says what to write"
        " instead.",
        "\n".join([*head, *rows]),
        "\n".join(f"{number}. {reason}" for reason, number in reasons.items()),
    ]
    return _page(parts)


def examples_page() -> str:
    """Every program of examples/ as the difference that compression makes to it."""
    parts = [
        "# Examples",
        "Generated by `docs/generate.py`. `examples/` has two versions of each"
        " program: `before.py` does not compress, `after.py` does. This page shows the differences"
        " between them. Every device is a worker. A machine without an accelerator has one device,"
        " its CPU. In your program, call `jaxcompress.virtual_cpu_workers(4)` first to split it"
        " into virtual devices. To run an example, set environment variables instead:"
        " `JAX_NUM_CPU_DEVICES=8 PJRT_NPROC=32 python examples/nnx/after.py` runs it on eight"
        " virtual devices. `PJRT_NPROC` sets the number of threads: with fewer, XLA may wait"
        " forever. The programs that read digits need scikit-learn, and the programs in `plain`"
        " take a folder for checkpoints. Those in `hosts` run once on every host. In the NNX"
        " program, an Optax optimizer replaces `nnx.Optimizer`.",
    ]
    for name, heading in EXAMPLES.items():
        before, after = (
            (DOCS.parent / "examples" / name / f"{which}.py").read_text().splitlines()
            for which in ("before", "after")
        )
        changes = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
        parts += [f"## {heading}", "\n".join(["```diff", *changes, "```"])]
    return _page(parts)


def options_page() -> str:
    """Every setting of the training program, by topic."""
    fields = {field.name: field for field in dataclasses.fields(Config)}
    texts = _texts_of_fields(DOCS.parent / "train" / "config.py")
    parts = [
        "# Options of the training program",
        "Generated by `docs/generate.py` from `train/config.py`. Each is a key of a YAML file and"
        " an option of `python -m train`: `batch_size: 256` or `--batch-size 256`. Options override"
        " the file. [The training program](training_program.md) explains how to use them.",
    ]
    for topic, names in TOPICS.items():
        rows = ["| option | default | |", "|---|---|---|"]
        for name in names:
            default = fields[name].default
            shown = json.dumps(default) if isinstance(default, str) else str(default)
            choices = typing.get_args(fields[name].type)
            one_of = [f"`{x}`" for x in choices if isinstance(x, str)]
            text = texts[name] + (f" One of {', '.join(one_of)}." if one_of else "")
            rows.append(f"| `--{name.replace('_', '-')}` | `{shown}` | {text} |")
        parts += [f"## {topic.capitalize()}", "\n".join(rows)]
    return _page(parts)


def _texts_of_fields(path: Path) -> dict[str, str]:
    """The text below each field of the dataclass in a file."""
    body = next(
        one for one in ast.parse(path.read_text()).body if isinstance(one, ast.ClassDef)
    ).body
    return {
        field.target.id: _prose(text.value.value).replace("|", "\\|")
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
    }


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


def _overview(chosen: Iterable[str]) -> str:
    """A table of names and their first sentences."""
    rows, seen = ["| | |", "|---|---|"], set()
    for name in chosen:
        summary = _parts(name)["summary"].replace("|", "\\|")
        # `plan` and `Plan` have the same anchor but for the number of the second.
        anchor = f"{name.lower()}-1" if name.lower() in seen else name.lower()
        seen.add(name.lower())
        rows.append(f"| [`{name}`](#{anchor}) | {summary} |")
    return "\n".join(rows)


def _section(name: str) -> str:
    """Everything that a docstring says, under one heading."""
    parts = _parts(name)
    lines = [f"### `{name}`", f"`{name}{_signature(exported(name))}`", parts["summary"]]
    lines += parts["body"]
    if parts["Args"]:
        lines.append("\n".join(parts["Args"]))
    for label in ("How it travels", "Guarantees", "Returns", "Raises"):
        if parts.get(label):
            lines.append(f"**{label}.** {parts[label]}")
    if parts["Example"]:
        lines.append(f"**Example.** {_example(parts['Example'])}")
    if parts["References"]:
        lines.append("**Papers.** " + "; ".join(parts["References"]) + ".")
    return "\n\n".join(lines)


def _signature(one: Callable) -> str:
    """Names and defaults of the arguments, without annotations."""
    bare = [
        parameter.replace(annotation=parameter.empty)
        for parameter in inspect.signature(one).parameters.values()
    ]
    text = str(inspect.Signature(bare)).replace("=", " = ")
    return re.sub(r"<function (\w+) at 0x\w+>", r"\1", text)


def _parts(name: str) -> dict[str, Any]:
    """A docstring by its headings."""
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(exported(name)) or name)
    parts: dict[str, Any] = {"body": [], "Args": [], "Example": [], "References": []}
    parts["summary"] = _prose(paragraphs[0])
    section = "body"
    for paragraph in paragraphs[1:]:
        heading = re.match(HEADINGS, paragraph)
        if heading:
            section = heading.group(1).split(",")[0].split()[0]
            section = "How it travels" if section == "How" else section
        match section:
            case "body":
                parts["body"].append(_verbatim(paragraph))
            case "Args":
                parts["Args"] += _arguments(paragraph)
            case "Example":
                parts["Example"] += _code(paragraph)
            case "References":
                parts["References"] += _papers(paragraph)
            case _:
                text = _without_heading(paragraph, section)
                parts[section] = f"{parts[section]} {text}" if section in parts else text
    return parts


def _without_heading(paragraph: str, section: str) -> str:
    """A paragraph as one line. What a heading adds to its name, such as the scope of a guarantee,
    stays in brackets.
    """
    heading = re.match(HEADINGS, paragraph)
    if not heading:
        return _prose(paragraph)
    scope = heading.group(1).removeprefix(section).strip(", ")
    text = _prose(paragraph[heading.end() :])
    return f"({scope}) {text}" if scope else text


def _prose(text: str) -> str:
    """One line of Markdown."""
    return " ".join(text.split()).replace("``", "`")


def _verbatim(paragraph: str) -> str:
    """A formula stays as it is; prose becomes one line."""
    if paragraph.startswith("    "):
        return "```\n" + textwrap.dedent(paragraph) + "\n```"
    return re.sub(r":{1,2}$", ":", _prose(paragraph))


def _arguments(paragraph: str) -> list[str]:
    """One line of a list for each argument."""
    name = r"^  (\*{0,2}\w+): "  # further in, a line continues the previous one
    found = re.findall(
        rf"{name}(.+?)(?={name}|\Z)", paragraph.removeprefix("Args:"), re.DOTALL | re.MULTILINE
    )
    return [f"- `{name}`: {_prose(text)}" for name, text, _ in found]


def _code(paragraph: str) -> list[str]:
    """The lines of a doctest, without imports."""
    lines = textwrap.dedent(paragraph.removeprefix("Example:").strip("\n")).splitlines()
    return [line for line in lines if not re.match(r">>> (from|import) ", line)]


def _example(code: list[str]) -> str:
    """The one line that is typed; if there are several, the whole doctest."""
    typed = [line for line in code if line.startswith((">>> ", "... "))]
    if len(typed) == 1:
        return f"`{typed[0].removeprefix('>>> ')}`"
    return "\n\n```\n" + "\n".join(code) + "\n```"


def _papers(paragraph: str) -> list[str]:
    text = " ".join(paragraph.removeprefix("References:").split())
    return [re.sub(r"`(.+?)\s*<(.+?)>`_", r"[\1](\2)", text)] if text else []


def _outcome(outer: str, inner: str, reasons: dict[str, int]) -> str:
    """✓, or the number of the reason why this pair is refused."""
    try:
        jaxcompress.parse(outer.format(inner))
    except jaxcompress.ExpressionError as error:
        text = re.sub(r"^\w+: ", "", error.message)
        text = re.sub(rf"(?<!\w){re.escape(inner)}", "…", text)
        return str(reasons.setdefault(text, len(reasons) + 1))
    return "✓"


PAGES = {
    "compressors.md": compressors_page,
    "contrib.md": contrib_page,
    "compositions.md": compositions_page,
    "optimizers.md": optimizers_page,
    "reference.md": reference_page,
    "examples.md": examples_page,
    "options.md": options_page,
}


def main() -> int:
    """Writes or checks all pages, and returns the exit code."""
    texts = {name: page() for name, page in PAGES.items()}
    changed = [
        name
        for name, text in texts.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text() != text
    ]
    if "--check" in sys.argv:
        for name in changed:
            print(f"docs/{name} differs from the code; run: make docs")
        return 1 if changed else 0
    for name in changed:
        (DOCS / name).write_text(texts[name])
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
