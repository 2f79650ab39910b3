"""What a route is: a question that can be asked over HTTP, and the envelope of its answer.

Knows no HTTP: what is asked comes as values, and what is wrong with it is an exception. Nor does it
know which questions there are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from koord.answers.envelope import AnswerGap, AnswerHead, EnvelopeDocument, GapCause
from koord.answers.gaps import head_of
from koord.answers.reading import Target, TargetKind
from koord.see.paging import ListForm
from koord.see.snapshots import Snapshot

KINDS: Final = {
    "pod": TargetKind.POD,
    "podgroup": TargetKind.POD_GROUP,
    "reservation": TargetKind.RESERVATION,
}
"""Kinds in paths, of what the planner decides about."""


STALE_SECONDS: Final = 70
"""From when on it is a gap that nothing was read."""
_STALE: Final = AnswerGap("what happened since then", GapCause.STALE, "what is different now")


class NothingThere(LookupError):  # noqa: N818 - says what is wrong
    """What was asked about does not exist, or is not the asker's to see."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What was asked, besides the route: parts of the path by name, and the body."""

    parts: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WithGaps:
    """A value, and what is missing in it beside what could not be read."""

    value: Any
    gaps: tuple[AnswerGap, ...] = ()


def _with_gaps(value: Any) -> WithGaps:
    return value if isinstance(value, WithGaps) else WithGaps(value, ())


_PLANNED: Final = frozenset({"Explanation", "Remedies"})


@dataclass(frozen=True, slots=True)
class Route:
    """A question. ``path`` is below the base path, its variable parts in braces.

    ``compute`` returns the value, perhaps ``WithGaps``, or the rows of a list with ``form``. It may
    raise ``NothingThere`` and ``InvalidQuery``. ``value`` is the type of the value, or of one row.
    """

    answer: str
    path: str
    summary: str
    compute: Callable[[Snapshot, Ask], Any]
    value: type
    form: ListForm | None = None
    body: Mapping[str, str] = field(default_factory=dict)
    """Fields of the body of a POST, and what they mean; a GET has none."""
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of those fields that are no texts."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Parameters of a GET that is no list, and what they mean."""
    begin: Callable[[Snapshot, Ask], Callable[[], WithGaps]] | None = None
    """Does what ``compute`` does in two parts: what it returns takes long, and needs no state."""
    fetches: bool = False
    """Whether that waits for an API server, more than it computes."""
    is_kept: bool = True
    """Whether all who ask about one snapshot get one answer; only of a GET."""

    @property
    def plans(self) -> bool:
        """Whether an answer takes a plan of its own, so that few are asked for at a time."""
        takes_long = self.begin is not None and not self.fetches
        return bool(self.body) or takes_long or self.answer in _PLANNED

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"

    def answer_from(self, snapshot: Snapshot, ask: Ask) -> WithGaps:
        """Return what ``compute`` does, computed once per snapshot where that may be."""
        if self.body or not self.is_kept:
            return _with_gaps(self.compute(snapshot, ask))
        key = (self.answer, *sorted(ask.parts.items()))
        return snapshot.keep(key, lambda: _with_gaps(self.compute(snapshot, ask)))


def head_for(route: Route, snapshot: Snapshot, ask: Ask, instance: str, now: float) -> AnswerHead:
    """Return the envelope of an answer at ``now``, which says how old it is."""
    head = head_of(route.answer, snapshot.reading, target_of(snapshot, ask))
    lag = max(0, int(now - snapshot.at))
    gaps = (*head.gaps, _STALE) if lag > STALE_SECONDS else head.gaps
    return replace(
        head, at=snapshot.at, state=snapshot.number, instance=instance, lag=lag, gaps=gaps
    )


def wrap(head: AnswerHead, answer: WithGaps) -> EnvelopeDocument:
    """Return an answer in its envelope."""
    return replace(head, gaps=(*head.gaps, *answer.gaps)).wrap(answer.value)


def target_of(snapshot: Snapshot, ask: Ask) -> Target:
    kind, parts = KINDS.get(ask.parts.get("kind", "")), ask.parts
    if kind is None:
        return snapshot.target
    return Target(kind, parts["namespace"], parts["name"])


def refuse_hidden_nodes(snapshot: Snapshot, what: str) -> None:
    """Refuse what names nodes to whoever may not list them. May raise ``NothingThere``."""
    if not snapshot.reading.sight.nodes:
        raise NothingThere(f"{what} is not shown: you may not list nodes and devices")
