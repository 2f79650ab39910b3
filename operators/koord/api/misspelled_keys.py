"""Keys that are misspelled, and keys that are a label instead of an annotation or the reverse.

The operators ignore unknown keys, so such a pod would start alone without a message. ``koord lint``
and ``koord explain`` report them, and so does an event on the pod. Koordinator has more keys than
we know: of other domains than gangs only those are reported that are nearly one of ours.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import islice
from typing import Final

from koord.api.gang import GANG_ANNOTATIONS, GANG_LABELS
from koord.api.keys import device, operators, preemption, quota, reservation
from koord.api.keys import gang as keys

LABELS: Final = frozenset(GANG_LABELS)
ANNOTATIONS: Final = frozenset(
    {key for key in GANG_ANNOTATIONS if not key.startswith(operators.PREFIX)}
    | {keys.TIMEOUT, keys.NETWORK_TOPOLOGY_INDEX}
)
QUOTA_LABELS: Final = frozenset(
    {
        quota.IS_PARENT,
        quota.PARENT,
        quota.ALLOW_LENT_RESOURCE,
        quota.TREE_ID,
        quota.IS_ROOT,
        quota.IGNORE_DEFAULT_TREE,
        quota.PROFILE,
        quota.ALLOW_FORCE_UPDATE,
    }
)
QUOTA_ANNOTATIONS: Final = frozenset(
    {
        quota.SHARED_WEIGHT,
        quota.NAMESPACES,
        quota.TOTAL_RESOURCE,
        quota.UNSCHEDULABLE_RESOURCE,
        quota.RESOURCE_KEYS,
        quota.ADMISSION,
        quota.MAX_STRICT_CHECK_RESOURCE_KEYS,
    }
)
_NO_LABELS: Final = ANNOTATIONS | QUOTA_ANNOTATIONS
_NO_ANNOTATIONS: Final = LABELS | QUOTA_LABELS
_PREFIXES: Final = (keys.PREFIX.rstrip("/"), keys.POD_GROUP)
_MIN_SIMILARITY: Final = 0.93
"""Allows one or two wrong letters in a prefix; prefixes of other features differ more."""
_SHORT: Final = 6
"""Up to this length two wrong letters of a name are many."""
_SHORTENED: Final = 0.85
"""Of the first words of a key, if the others are left out: ``allow-lent`` for the whole."""
_MAX_CHECKED: Final = 32
"""Keys of one object with a prefix like ours that are compared: whoever writes them has many."""
_NAMES: Final[dict[str, set[str]]] = {}
"""Prefix -> the names that we know with it."""
for _module in (device, keys, operators, preemption, quota, reservation):
    for _value in vars(_module).values():
        if isinstance(_value, str) and ".sh/" in _value and not _value.endswith("/"):
            _NAMES.setdefault(_value.partition("/")[0], set()).add(_value.partition("/")[2])


@dataclass(frozen=True, slots=True)
class MisspelledKey:
    """A key without effect, and why; ``problem`` follows the key in a sentence."""

    key: str
    problem: str


def find_misspelled_keys(
    labels: Iterable[str], annotations: Iterable[str]
) -> Iterator[MisspelledKey]:
    for written, own, other, problem in (
        (labels, LABELS, _NO_LABELS, "is an annotation, and has no effect as a label"),
        (
            annotations,
            ANNOTATIONS,
            _NO_ANNOTATIONS,
            "is a label, and has no effect as an annotation",
        ),
    ):
        unknown = [key for key in written if key not in own]
        alike = (key for key in unknown if key in other or _find_alike(key.partition("/")[0]))
        for key in islice(alike, _MAX_CHECKED):
            if key in other:
                yield MisspelledKey(key, problem)
            elif nearest := _find_nearest(key):
                yield MisspelledKey(key, f"is unknown; {nearest} may be meant")


def _find_nearest(key: str) -> str:
    prefix, _, name = key.partition("/")
    ours = _find_nearest_prefix(prefix)
    if not ours:
        return ""
    if ours in _PREFIXES:
        return max(sorted(LABELS | ANNOTATIONS), key=lambda candidate: _similarity(key, candidate))
    if name in _NAMES[ours] and prefix == ours:
        return ""
    nearest = max(sorted(_NAMES[ours]), key=lambda candidate: _similarity(name, candidate))
    least = 0.75 if len(nearest) <= _SHORT else 0.85
    if _similarity(name, nearest) < least:
        nearest = _find_shortened(name, ours)
    return f"{ours}/{nearest}" if nearest else ""


def _find_shortened(name: str, prefix: str) -> str:
    """Return the key of a quota of which ``name`` is the first words; empty if there is none."""
    count = name.count("-") + 1
    if count == 1 or f"{prefix}/" != quota.PREFIX:
        return ""
    for candidate in sorted(_NAMES[prefix]):
        words = candidate.split("-")
        if len(words) > count and _similarity(name, "-".join(words[:count])) >= _SHORTENED:
            return candidate
    return ""


@lru_cache(maxsize=1024)
def _find_alike(prefix: str) -> tuple[str, ...]:
    """Return our prefixes of about the same length that begin or end alike: a cheap test."""
    return tuple(
        name
        for name in (*_PREFIXES, *_NAMES)
        if abs(len(name) - len(prefix)) <= 2
        and (name[:3] == prefix[:3] or name[-3:] == prefix[-3:])
    )


@lru_cache(maxsize=1024)
def _find_nearest_prefix(prefix: str) -> str:
    """Return the prefix of ours that may be meant; empty if none is."""
    prefixes = _find_alike(prefix)
    if prefix in prefixes:
        return prefix
    alike = {name: _similarity(prefix, name) for name in prefixes}
    nearest = max(alike, key=lambda candidate: alike[candidate], default="")
    return nearest if nearest and alike[nearest] >= _MIN_SIMILARITY else ""


def _similarity(left: str, right: str) -> float:
    return SequenceMatcher(None, left, right, autojunk=False).ratio()
