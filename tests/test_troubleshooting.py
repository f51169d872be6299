"""docs/troubleshooting.md quotes messages as the code prints them; `…` stands for their values."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
# Before a block: a message of JAX, Python or Orbax, as "JAX says:".
SAYS = re.compile(r"\w+ says:$")
# In the text of a source: a value, which is never in a message of the page.
VALUE = "\0"


def blocks() -> list[tuple[str, str]]:
    """What stands before each quoted message of the page, and the message."""
    return re.findall(r"([^\n]*)\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)


QUOTED = [message for before, message in blocks() if not SAYS.search(before)]


def spaced(text: str) -> str:
    """`text` with single spaces, as a message may be folded on the page and in the source."""
    return " ".join(text.split())


def joined(node: ast.expr) -> str:
    """The text of a string, an f-string, or a sum of these, with `VALUE` for what is not known."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(parts):
            return "".join(map(joined, parts))
        case ast.BinOp(left, ast.Add(), right):
            return joined(left) + joined(right)
    return VALUE


def source_texts() -> Iterator[str]:
    """Every text in the library and in the training program."""
    for folder in ("jaxcompress", "train"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
                    yield spaced(joined(node))


TEXTS = "\n".join(source_texts())


def fragments(message: str) -> list[str]:
    """What stands between the values of a message."""
    return [part for part in map(spaced, message.split("…")) if part]


def missing(message: str) -> list[str]:
    """The fragments of a message that no source has."""
    return [part for part in fragments(message) if part not in TEXTS]


def test_the_page_has_messages_of_this_project_and_of_jax():
    assert len(QUOTED) >= 20
    assert len(blocks()) - len(QUOTED) >= 10
    assert len(blocks()) == PAGE.count("```text")


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_in_the_source(message):
    assert not missing(message)


@pytest.mark.parametrize("message", QUOTED)
def test_a_message_that_was_changed_is_found(message):
    longest = max(fragments(message), key=len)
    assert len(longest) > 5, "this says too little to be found by"
    word = max(longest.split(), key=len)
    assert missing(message.replace(word, f"{word[:-1]}~"))


def test_a_message_of_jax_is_marked_as_such():
    unmarked = [message for message in QUOTED if message.split(":")[0].endswith("Error")]
    assert not unmarked
