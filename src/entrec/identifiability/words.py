"""Words that name a choice, and what was probably meant by one that names none."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, get_args


def nearest(word: Any, among: Iterable[str]) -> str:
    """A question for the end of a complaint; empty where nothing is near."""
    close = get_close_matches(str(word).lower(), list(among), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def choice(name: str, word: Any, options: Any) -> None:
    """`word` is one of a `Literal`'s."""
    words = get_args(options)
    if word not in words:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}, got {word!r}{nearest(word, words)}")
