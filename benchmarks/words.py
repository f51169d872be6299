"""The words of `--only`: which of several texts they choose."""

from collections.abc import Iterable


def check_words(words: Iterable[str], texts: Iterable[str]) -> None:
    """ValueError if there are words and none of these compressors contains one."""
    words, texts = tuple(words), tuple(texts)
    if words and not any(word in text for word in words for text in texts):
        raise ValueError(f"no compressor contains any of the words {words}.")
