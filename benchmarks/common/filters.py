"""Filters of the command line, as in ``--only qsgd``: parts of the texts to choose."""

from collections.abc import Iterable, Sequence


def matches(text: str, filters: Sequence[str]) -> bool:
    """Whether `text` contains one of the filters; without filters every text matches."""
    return not filters or any(each in text for each in filters)


def check_filters(filters: Sequence[str], texts: Iterable[str], what: str = "compressor") -> None:
    """Raises ValueError if no text matches the filters."""
    if filters and not any(matches(text, filters) for text in texts):
        raise ValueError(f"no {what} contains {' or '.join(map(repr, filters))}.")
