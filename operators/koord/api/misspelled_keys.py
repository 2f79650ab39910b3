"""Keys of gangs that are nearly right: misspelled, or written as a label instead of an annotation.

To the operators such a key is one of somebody else, and the pod one without a gang: it would start
alone and say nothing. Only people can be told, before (``koord crds lint``) or when they ask
(``koord explain``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from koord.api.keys import gang as keys
from koord.api.keys import kubernetes

LABELS: Final = frozenset(
    {
        keys.POD_GROUP,
        keys.LEGACY_NAME,
        keys.LEGACY_MIN_AVAILABLE,
        kubernetes.KUEUE_NAME,
    }
)
ANNOTATIONS: Final = frozenset(
    {
        keys.NAME,
        keys.MIN_AVAILABLE,
        keys.TOTAL_NUMBER,
        keys.WAITING_TIME,
        keys.MODE,
        keys.MATCH_POLICY,
        keys.MATCH_POLICY_ALIAS,
        keys.GROUPS,
        keys.TIMEOUT,
        keys.NETWORK_TOPOLOGY_SPEC,
        keys.NETWORK_TOPOLOGY_INDEX,
        kubernetes.KUEUE_TOTAL,
    }
)
_PREFIXES: Final = (keys.PREFIX.rstrip("/"), keys.POD_GROUP)
_LIKENESS: Final = 0.93
"""One or two wrong letters in a prefix; the prefixes of other features differ in more."""


@dataclass(frozen=True, slots=True)
class Slip:
    """A key that says nothing where it stands, and what may be meant."""

    key: str
    problem: str


def find_slips(labels: Iterable[str], annotations: Iterable[str]) -> Iterator[Slip]:
    """Find the keys among these that were meant for us and are not ours."""
    for key in labels:
        if key in ANNOTATIONS:
            yield Slip(key, "is an annotation, and says nothing as a label")
        elif key not in LABELS:
            yield from _find_misspelled(key, LABELS | ANNOTATIONS)
    for key in annotations:
        if key in LABELS:
            yield Slip(key, "is a label, and says nothing as an annotation")
        elif key not in ANNOTATIONS:
            yield from _find_misspelled(key, LABELS | ANNOTATIONS)


def _find_misspelled(key: str, known: frozenset[str]) -> Iterator[Slip]:
    prefix = key.partition("/")[0]
    if max(_likeness(prefix, one) for one in _PREFIXES) >= _LIKENESS:
        nearest = max(sorted(known), key=lambda one: _likeness(key, one))
        yield Slip(key, f"is no key that means anything; {nearest} may be meant")


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
