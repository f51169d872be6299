"""The gallery shows every picture of the benchmarks, and names commands that exist."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "gallery.md"
RESULTS = REPOSITORY / "benchmarks" / "results"


def pictures() -> list[Path]:
    """The files that the page shows, in its order."""
    targets = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE.read_text())
    return [(PAGE.parent / target).resolve() for target in targets]


def test_every_picture_is_shown_once():
    saved = [*RESULTS.glob("*.png"), *RESULTS.glob("*.gif")]
    assert sorted(pictures()) == sorted(saved)


def test_the_animation_is_first_and_small():
    assert pictures()[0].suffix == ".gif"
    assert all(path.stat().st_size < 1_000_000 for path in pictures())


def test_every_link_leads_to_a_file():
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", PAGE.read_text())
    assert [target for target in targets if not (PAGE.parent / target).exists()] == []


def test_every_picture_has_a_command_whose_package_exists():
    for part in PAGE.read_text().split("![")[:-1]:
        names = re.findall(r"`(?:sudo \.venv/bin/)?python -m benchmarks\.(\w+)[^`]*`\n*$", part)
        assert len(names) == 1, part[-200:]
        assert (REPOSITORY / "benchmarks" / names[0] / "__main__.py").exists(), names[0]
