"""Keys of gangs that are misspelled, or written as a label instead of an annotation.

The operators ignore unknown keys, so such a pod would start alone without a message. ``koord crds
lint`` and ``koord explain`` report them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from koord.api.gang import GANG_ANNOTATIONS, GANG_LABELS
from koord.api.keys import gang as keys
from koord.api.keys import operators

LABELS: Final = frozenset(GANG_LABELS)
ANNOTATIONS: Final = frozenset(
    {key for key in GANG_ANNOTATIONS if not key.startswith(operators.PREFIX)}
    | {keys.TIMEOUT, keys.NETWORK_TOPOLOGY_INDEX}
)
_PREFIXES: Final = (keys.PREFIX.rstrip("/"), keys.POD_GROUP)
_MIN_SIMILARITY: Final = 0.93
"""Allows one or two wrong letters in a prefix; prefixes of other features differ more."""


@dataclass(frozen=True, slots=True)
class MisspelledKey:
    """A key without effect, and why; ``problem`` follows the key in a sentence."""

    key: str
    problem: str


def find_misspelled_keys(
    labels: Iterable[str], annotations: Iterable[str]
) -> Iterator[MisspelledKey]:
    for key in labels:
        if key in ANNOTATIONS:
            yield MisspelledKey(key, "is an annotation, and has no effect as a label")
        elif key not in LABELS:
            yield from _find_misspelled(key, LABELS | ANNOTATIONS)
    for key in annotations:
        if key in LABELS:
            yield MisspelledKey(key, "is a label, and has no effect as an annotation")
        elif key not in ANNOTATIONS:
            yield from _find_misspelled(key, LABELS | ANNOTATIONS)


def _find_misspelled(key: str, known: frozenset[str]) -> Iterator[MisspelledKey]:
    prefix = key.partition("/")[0]
    if max(_similarity(prefix, one) for one in _PREFIXES) >= _MIN_SIMILARITY:
        nearest = max(sorted(known), key=lambda one: _similarity(key, one))
        yield MisspelledKey(key, f"is unknown; {nearest} may be meant")


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
