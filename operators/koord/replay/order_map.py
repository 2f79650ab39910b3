"""Replaces the words of texts, so that texts keep their order, and equal parts stay equal.

The planner breaks ties by name, so a snapshot whose names were replaced at random would be planned
differently. A *word* is what stands between the characters below the digits: ``-``, ``.``, ``/``
and so on, which stay. Replacing words by others in the same order keeps the order of all texts, of
``a/b`` and ``a-b/c`` too, because what ends a word sorts before all that goes on with it.

Some words have to stay, because the planner or Kubernetes knows them. A word between two of them in
the order gets the name of the one before it with its rank, so that all are in order again.

Names of pods also have an order in which numbers count as such (``w-2`` before ``w-10``), so that
numbers in them stay. Knows nothing of what texts mean.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Final

_WORD: Final = re.compile(r"[^\x00-/:]+")
_LETTERS: Final = re.compile(r"[^\x00-:]+")
_MOST_PADDING: Final = 8
_DIGITS: Final = "0123456789"
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"
FIRST: Final = "a"
"""Words before all that stay begin with it."""


class NoOrder(ValueError):  # noqa: N818 - what it says is what is wrong
    """Words that stay lie so close together that no word fits between."""


class OrderMap:
    """A replacement of words. With ``keeps_numbers`` digits are no part of words, and stay."""

    def __init__(
        self, texts: Iterable[str], kept: Collection[str], *, keeps_numbers: bool = False
    ) -> None:
        self._pattern = _LETTERS if keeps_numbers else _WORD
        words = {word for text in texts for word in self._pattern.findall(text)}
        self._words = _replace(words, set(kept) & words, _ALPHABET if keeps_numbers else _DIGITS)

    def replace(self, text: str) -> str:
        """Return a text with its words replaced; those that were not there before are blanked."""
        return self._pattern.sub(lambda match: self._words.get(match[0], "x"), text)


def find_words(texts: Iterable[str]) -> set[str]:
    """Return the words of texts, with digits and without."""
    patterns = _WORD, _LETTERS
    return {word for text in texts for pattern in patterns for word in pattern.findall(text)}


def _replace(words: set[str], kept: set[str], alphabet: str) -> dict[str, str]:
    ordered, stay = sorted(words), sorted(kept)
    for padding in range(1, _MOST_PADDING):
        replaced = _rank(ordered, stay, alphabet, padding)
        names = [replaced[word] for word in ordered]
        if all(a < b for a, b in pairwise(names)):
            return replaced
    raise NoOrder(f"the words {', '.join(stay)[:200]} leave no room between them")


def _rank(
    ordered: Sequence[str], stay: Sequence[str], alphabet: str, padding: int
) -> dict[str, str]:
    replaced: dict[str, str] = {}
    width = padding + len(_write(len(ordered), alphabet))
    fixed = set(stay)
    for rank, word in enumerate(ordered):
        at = bisect_right(stay, word)
        before = stay[at - 1] if at else FIRST
        number = _write(rank, alphabet).rjust(width, alphabet[0])
        replaced[word] = word if word in fixed else f"{before}{number}"
    return replaced


def _write(number: int, alphabet: str) -> str:
    """Write a number with these digits."""
    text = ""
    while number or not text:
        number, digit = divmod(number, len(alphabet))
        text = alphabet[digit] + text
    return text
