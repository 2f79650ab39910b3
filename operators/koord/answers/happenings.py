"""What happened to a unit, as values, whoever tells of it: records, histories, conditions, events.

One function per source makes them, so that no two commands tell of the same in different words.
Reads nothing; documents of records may lack anything.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypedDict

from koord.answers.audit import to_ms, to_text
from koord.answers.encoding import encode
from koord.core.model.gang_history import Episode
from koord.core.model.text import named, plural

SAME_MS: Final = 2000
"""Within which two sources tell of the same."""
MOST_NAMED: Final = 8
_EVICTIONS: Final = {"preemption": "Preempted", "reclaim": "Reclaimed", "restart": "Restarted"}
"""Policy -> what histories call it."""
PLACED: Final = "Placed"


class StorySource(StrEnum):
    """Who tells; what several tell of is taken from the first of them."""

    AUDIT = "Audit"
    HISTORY = "History"
    CONDITION = "Condition"
    EVENT = "Event"


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened, ``at`` milliseconds since the epoch.

    ``by`` names for whom. ``ref`` is the unit that it happened to. It comes after what a leader
    before has recorded, whatever its time: ``not_before`` is when that one wrote last, by its own
    clock.
    """

    at: int
    what: str
    text: str
    source: StorySource
    by: str = ""
    ref: str = ""
    not_before: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """By what happenings are sorted."""
        return max(self.at, self.not_before), self.not_before, self.at


@dataclass(frozen=True, slots=True)
class SeenObjects:
    """What API objects say of a unit; times are milliseconds since the epoch.

    ``conditions`` are (type, status, reason, message, since), ``events`` (time, reason, text).
    """

    created: int | None = None
    episodes: tuple[Episode, ...] = ()
    conditions: tuple[tuple[str, bool, str, str, int], ...] = ()
    events: tuple[tuple[int, str, str], ...] = ()
    runs: bool = False
    uid: str = ""
    ref: str = ""


def tell_episodes(episodes: Iterable[Episode], ref: str = "") -> tuple[Happening, ...]:
    """Return what the history of a PodGroup tells."""
    return tuple(
        Happening(
            episode.time * 1000, episode.what, episode.why, StorySource.HISTORY, episode.by, ref
        )
        for episode in episodes
    )


def tell_record(record: Mapping[str, Any]) -> Happening | None:
    """Return what a record tells; None for what is about no unit."""
    kind, at = record.get("kind"), to_ms(record.get("at"))
    unit = record.get("unit")
    tell = _TELLING.get(str(kind))
    if tell is None or at is None or not isinstance(unit, Mapping):
        return None
    what, text = tell(record)
    if kind in {"Seen", "Complete"}:
        at = to_ms(record.get("since")) or at
    return Happening(
        at, what, text, StorySource.AUDIT, str(record.get("by") or ""), str(unit.get("key", ""))
    )


def tell_quota_change(record: Mapping[str, Any]) -> Happening | None:
    """Return what a record tells of a quota whose settings were changed; None for all others."""
    at, quota = to_ms(record.get("at")), record.get("quota")
    if record.get("kind") != "Changed" or at is None or not isinstance(quota, str) or not quota:
        return None
    what, changes = _tell_changed(record)
    return Happening(at, what, f"quota {quota}: {changes}", StorySource.AUDIT)


def find_quotas(records: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the quotas that records of a unit name."""
    quotas: set[str] = set()
    for record in records:
        placed, fields = record.get("quotas"), record.get("fields")
        quotas.update(str(name) for name in (placed if isinstance(placed, list) else ()))
        if isinstance(fields, Mapping) and record.get("class") == "Quota":
            path = fields.get("topo")
            quotas.update(str(name) for name in (path if isinstance(path, list) else ()))
            quotas.update([str(fields["quota"])] if fields.get("quota") else [])
    return quotas


def _tell_attempt(record: Mapping[str, Any]) -> tuple[str, str]:
    text, repeats = str(record.get("text") or ""), number_of(record, "repeats")
    if repeats:
        text = f"{text} ({repeats + 1} times, the last one at {record.get('lastAt')})"
    return str(record.get("code")), text.strip()


def _tell_placed(record: Mapping[str, Any]) -> tuple[str, str]:
    nodes = [str(node.get("node")) for node in _items(record, "nodes")]
    pods = sum(number_of(node, "pods") for node in _items(record, "nodes"))
    more = number_of(record, "moreNodes")
    where = f"{named(nodes, MOST_NAMED)}{f' and {more} more nodes' if more else ''}"
    return PLACED, f"{plural(pods, 'pod')} on {where} (plan {record.get('planId')})"


def _tell_committed(record: Mapping[str, Any]) -> tuple[str, str]:
    took = number_of(record, "tookMs") / 1000
    parts = [f"{plural(number_of(record, 'binds'), 'pod')} bound in {took:.1f} s"]
    if number_of(record, "leftToOthers"):
        parts.append(f"{number_of(record, 'leftToOthers')} left to their scheduler")
    if number_of(record, "notBound"):
        parts.append(f"{number_of(record, 'notBound')} not bound")
    parts += [
        f"{failure.get('pod')}: {failure.get('message')} ({number_of(failure, 'status')})"
        for failure in _items(record, "failures")[:1]
    ]
    return "Bound", "; ".join(parts)


def _tell_held(record: Mapping[str, Any]) -> tuple[str, str]:
    return "Held", f"it may not start before somebody releases it ({record.get('code')})"


def _tell_changed(record: Mapping[str, Any]) -> tuple[str, str]:
    changes = _items(record, "changes")
    parts = [
        f"{change.get('field')} from {change.get('from') or 'nothing'} to "
        f"{change.get('to') or 'nothing'}"
        for change in changes[:MOST_NAMED]
    ]
    more = len(changes) - len(parts)
    parts += [f"{more} more"] if more else []
    return "Changed", "; ".join(parts)


def _tell_victim_gone(record: Mapping[str, Any]) -> tuple[str, str]:
    left = number_of(record, "left")
    still = f"{plural(left, 'other')} still there" if left else "the last one"
    return "VictimGone", f"a pod that goes for it is gone ({record.get('policy')}); {still}"


def _tell_preempting(record: Mapping[str, Any]) -> tuple[str, str]:
    outcome, victims = record.get("outcome"), number_of(record, "victims")
    if outcome:
        return "Preempting", f"the eviction of others for it is over: {outcome}"
    return "Preempting", f"{plural(victims, 'pod')} of others go for it ({record.get('policy')})"


def _tell_evicted(record: Mapping[str, Any]) -> tuple[str, str]:
    policy, count = str(record.get("policy")), number_of(record, "count")
    names = [str(pod.get("name")) for pod in _items(record, "pods")]
    text = f"{plural(count, 'pod')} evicted: {named(names, MOST_NAMED)}"
    return _EVICTIONS.get(policy, "Evicted"), text


def _tell_members(record: Mapping[str, Any]) -> tuple[str, str]:
    unit = record.get("unit") or {}
    counts = f"{plural(number_of(unit, 'pods'), 'pod')}, {number_of(unit, 'required')} required"
    return str(record.get("kind")), counts


_TELLING: Final[Mapping[str, Callable[[Mapping[str, Any]], tuple[str, str]]]] = {
    "Seen": _tell_members,
    "Complete": _tell_members,
    "Attempt": _tell_attempt,
    "Held": _tell_held,
    "Changed": _tell_changed,
    "VictimGone": _tell_victim_gone,
    "Released": lambda _: ("Released", "nobody holds it any more"),
    "Placed": _tell_placed,
    "Committed": _tell_committed,
    "Preempting": _tell_preempting,
    "Evicted": _tell_evicted,
    "Degraded": lambda record: ("Degraded", str(record.get("why"))),
    "TimedOut": lambda record: ("TimedOut", str(record.get("why"))),
    "Running": lambda _: ("Running", "as many members as it needs run"),
    "Ended": lambda _: ("Ended", "nothing of it runs any more"),
    "Gone": lambda _: ("Gone", "none of its objects exists any more"),
}


def _items(record: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    items = record.get(name)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def number_of(record: Mapping[str, Any], name: str) -> int:
    """Return a number of a document; 0 if it is none."""
    number = record.get(name)
    return number if isinstance(number, int) else 0


def tell_objects(seen: SeenObjects) -> list[Happening]:
    """Return what API objects tell: history first, then conditions and events."""
    happenings = list(tell_episodes(seen.episodes, seen.ref))
    happenings += [
        Happening(since, kind if is_true else reason, message, StorySource.CONDITION, "", seen.ref)
        for kind, is_true, reason, message, since in seen.conditions
    ]
    happenings += [
        Happening(at, reason, text, StorySource.EVENT, "", seen.ref)
        for at, reason, text in seen.events
    ]
    return happenings


def merge(happenings: Iterable[Happening]) -> tuple[Happening, ...]:
    """Return all in order, without what a better source tells of at about the same time."""
    order = list(StorySource)
    kept: dict[tuple[str, str], list[int]] = {}
    result: list[Happening] = []
    for happening in sorted(
        happenings, key=lambda happening: (order.index(happening.source), happening.at)
    ):
        times = kept.setdefault((happening.what, happening.ref), [])
        is_better_known = happening.source is not StorySource.AUDIT and any(
            abs(at - happening.at) <= SAME_MS for at in times
        )
        if not is_better_known:
            times.append(happening.at)
            result.append(happening)
    return tuple(sorted(result, key=lambda happening: happening.place))


@dataclass(frozen=True, slots=True)
class Subject:
    """The object of which is told; ``kind`` may be empty: whatever has the name."""

    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_about(record: Mapping[str, Any], subject: Subject) -> bool:
    """Whether a record is about an object, or about the unit that it is part of."""
    unit = record.get("unit")
    if not isinstance(unit, Mapping):
        return False
    names, owner = unit.get("names"), unit.get("owner")
    if subject.kind in {"", "Pod", "PodGroup"} and isinstance(names, list) and subject.key in names:
        return True
    if unit.get("namespace") != subject.namespace:
        return False
    if isinstance(owner, Mapping) and owner.get("name") == subject.name:
        return subject.kind in {"", owner.get("kind")}
    return subject.kind in {"", "Pod"} and subject.name in _pods_of(record)


def _pods_of(record: Mapping[str, Any]) -> set[str]:
    placed = {str(name) for node in _items(record, "nodes") for name in node.get("names") or ()}
    return placed | {str(pod.get("name")) for pod in _items(record, "pods")}


def select(records: Sequence[Mapping[str, Any]], subject: Subject) -> list[Mapping[str, Any]]:
    """Return all records of the units that an object is, or is part of, in their order."""
    traces = {record.get("trace") for record in records if is_about(record, subject)}
    traces.discard(None)
    return [record for record in records if record.get("trace") in traces]


class HappeningDocument(TypedDict):
    """One thing that happened, and to what."""

    at: str
    what: str
    text: str
    by: str | None
    ref: str
    source: StorySource


@encode.register
def _(happening: Happening) -> HappeningDocument:
    return {
        "at": to_text(happening.at),
        "what": happening.what,
        "text": happening.text,
        "by": happening.by or None,
        "ref": happening.ref,
        "source": happening.source,
    }
