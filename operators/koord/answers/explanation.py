"""Why something waits, as a value and as a document. Knows not how it is found out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from koord.answers.encoding import Encoded, encode
from koord.answers.explain import PlacementState, ShapeOffers, TopologyExplanation
from koord.answers.reading import Target
from koord.answers.remedies import RemediesDocument, Remedy, encode_remedies
from koord.answers.reports import Reported, ReportedReason
from koord.answers.summary import (
    DominantReason,
    NodeCauseCount,
    OwnerRef,
    count_causes,
    find_dominant,
)
from koord.core.engine.reasons import Closed
from koord.core.gang.reasons import GangCount
from koord.core.gang.status import MemberCounts
from koord.core.model.gang_history import Episode
from koord.core.model.gangs import BadValue, GangKey
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason, class_of
from koord.core.model.text import format_time


@dataclass(frozen=True, slots=True)
class History:
    """Since when the state lasts (in the format of the API, or empty), and the last report."""

    since: str = ""
    reported: Reported | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """A reason, and its text as in conditions and events."""

    message: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class PodPlace:
    """The node of a pod, bound or planned; ``plan_id`` is empty if somebody else placed it."""

    node: str
    is_bound: bool
    plan_id: str = ""
    group: str = ""
    member_count: int = 0


@dataclass(frozen=True, slots=True)
class GangAnswer:
    """The gang: present and needed members of each gang of its group, and its nodes.

    ``group`` has its sub-groups too, after the gangs; it leaves out gangs without known settings.
    ``ignored`` are invalid settings of the gang itself, which starts without them. ``by_others``
    counts the members on nodes that another scheduler placed.
    """

    key: GangKey
    group: tuple[GangCount, ...]
    members: MemberCounts
    plan_id: str
    nodes: tuple[str, ...]
    ignored: tuple[BadValue, ...] = ()
    by_others: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything known about a pod or a gang.

    ``is_reported_on`` says whether running operators would write conditions on the object. ``add``
    is the YAML with which the pod, or other members of its gang, opt in. ``waits`` says why a gang
    below its minimum does not get members back; its ``reason`` is that it is below.
    """

    target: Target
    standing: PlacementState
    history: History = field(default_factory=History)
    reason: Explained | None = None
    waits: Explained | None = None
    is_reported_on: bool = False
    place: PodPlace | None = None
    gang: GangAnswer | None = None
    offers: tuple[ShapeOffers, ...] = ()
    not_asked: int = 0
    """Members of which no node was asked: they are unlike those in the offers."""
    network: TopologyExplanation | None = None
    advice: tuple[str, ...] = ()
    add: str = ""
    warnings: tuple[str, ...] = ()
    episodes: tuple[Episode, ...] = ()
    """What happened to the gang, oldest first."""
    is_led: bool = True
    """False if nobody leads for certain."""
    notes: tuple[str, ...] = ()
    """Statements about the Job that was asked for, which has no living pods."""
    owner: OwnerRef | None = None
    closed: tuple[Closed, ...] = ()
    """Nodes that would have room, but for one thing."""
    remedies: tuple[Remedy, ...] | None = None
    """What was tried and would help; None: nothing was tried."""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All that keeps it from starting."""
        explained = (self.waits, self.reason)
        return tuple(each.reason for each in explained if each is not None)


ExplainedDocument = TypedDict(
    "ExplainedDocument",
    {"code": str, "class": ReasonClass | None, "message": str, "fields": Mapping[str, Any]},
)
DominantReasonDocument = TypedDict(
    "DominantReasonDocument", {"code": str, "class": ReasonClass | None, "sentence": str}
)


class EpisodeDocument(TypedDict):
    """One thing that happened to a gang."""

    time: str
    what: str
    why: str
    by: str | None


class ExplanationDocument(TypedDict):
    """Everything known about why a pod or a gang waits."""

    kind: str
    namespace: str
    name: str
    standing: PlacementState
    since: str | None
    reason: ExplainedDocument | None
    waits: ExplainedDocument | None
    reported: Encoded[Reported] | None
    place: Encoded[PodPlace] | None
    gang: Encoded[GangAnswer] | None
    network: Encoded[TopologyExplanation] | None
    offers: list[Encoded[ShapeOffers]]
    notAsked: int
    advice: list[str]
    add: str | None
    warnings: list[str]
    history: list[EpisodeDocument]
    notes: list[str]
    dominant: DominantReasonDocument | None
    nodes: list[Encoded[NodeCauseCount]]
    owner: Encoded[OwnerRef] | None
    remedies: RemediesDocument | None


@encode.register
def _(answer: Explanation) -> ExplanationDocument:
    return {
        "kind": answer.target.kind,
        "namespace": answer.target.namespace,
        "name": answer.target.name,
        "standing": answer.standing,
        "since": answer.history.since or None,
        "reason": encode(answer.reason),
        "waits": encode(answer.waits),
        "reported": encode(answer.history.reported),
        "place": encode(answer.place),
        "gang": encode(answer.gang),
        "network": encode(answer.network),
        "offers": encode(answer.offers),
        "notAsked": answer.not_asked,
        "advice": encode(answer.advice),
        "add": answer.add or None,
        "warnings": encode(answer.warnings),
        "history": encode(answer.episodes),
        "notes": encode(answer.notes),
        "dominant": encode(find_dominant(answer.reasons)),
        "nodes": encode(count_causes(answer.offers)),
        "owner": encode(answer.owner),
        "remedies": None if answer.remedies is None else encode_remedies(answer.remedies),
    }


@encode.register
def _(dominant: DominantReason) -> DominantReasonDocument:
    return {
        "code": dominant.code,
        "class": dominant.reason_class,
        "sentence": dominant.sentence,
    }


@encode.register
def _(episode: Episode) -> EpisodeDocument:
    return {
        "time": format_time(episode.time),
        "what": episode.what,
        "why": episode.why,
        "by": encode(episode.by) or None,
    }


@encode.register
def _(explained: Explained) -> ExplainedDocument:
    is_reported = isinstance(explained.reason, ReportedReason)
    return {
        "code": explained.reason.code,
        "class": class_of(explained.reason.code),
        "message": explained.message,
        "fields": {} if is_reported else encode(explained.reason),
    }
