"""The operators of all custom resources but PodGroup: validation.

Each looks at every object of its kind and says in the condition ``Accepted`` whether the object can
be used, naming the fields that stand against it. What the resources *do* is decided elsewhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from koord.api.annotations import find_problems
from koord.api.device import Device
from koord.api.elasticquota import ElasticQuota
from koord.api.networktopology import ClusterNetworkTopology
from koord.api.parse import InvalidObject, Problem, parse
from koord.api.quotaprofile import ElasticQuotaProfile, find_policy_problems
from koord.api.reservation import Reservation
from koord.api.resource import Resource
from koord.controllers.kopf_handlers import register_events

if TYPE_CHECKING:
    import kopf

ACCEPTED: Final = "Accepted"
VALID: Final = "Valid"
INVALID: Final = "Invalid"

RESOURCE_OF_OPERATOR: Final[Mapping[str, type[Resource]]] = {
    "elasticquota": ElasticQuota,
    "elasticquotaprofile": ElasticQuotaProfile,
    "reservation": Reservation,
    "networktopology": ClusterNetworkTopology,
    "device": Device,
}


class AcceptedSink(Protocol):
    """Where verdicts go."""

    def accept(self, resource: type[Resource], body: Mapping[str, Any], verdict: "Verdict") -> None:
        """Write the condition of one object, if it differs from what is there."""

    def forget(self, uid: str) -> None:
        """Drop what is remembered of an object that is gone."""

    def forget_all(self) -> None:
        """Drop what is remembered of all objects: they are about to be seen again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an object can be used; ``problems`` say why not, field first."""

    problems: tuple[Problem, ...] = ()

    @property
    def reason(self) -> str:
        """One word for programs."""
        return INVALID if self.problems else VALID

    @property
    def message(self) -> str:
        """A sentence for people."""
        return "; ".join(map(str, self.problems)) or "the object is valid"


def judge(resource: type[Resource], body: Mapping[str, Any]) -> Verdict:
    """Validate what a user has written: spec and annotations, not the status."""
    parsed = parse(resource, {key: value for key, value in body.items() if key != "status"})
    if isinstance(parsed, InvalidObject):
        return Verdict(parsed.problems)
    annotations = parsed.metadata.annotations
    is_profile = resource is ElasticQuotaProfile
    return Verdict(
        (*find_problems(annotations), *(find_policy_problems(annotations) if is_profile else ()))
    )


class Judge:
    """Judges objects of one kind, each version once: most of what happens to one is its status.

    Of what the user writes, only labels and annotations may change while the generation stays.
    """

    def __init__(self, resource: type[Resource]) -> None:
        self._resource = resource
        self._known: dict[str, tuple[object, Verdict]] = {}
        """Object uid -> the version that was judged last, and what came of it."""

    def judge(self, body: Mapping[str, Any]) -> Verdict:
        """Validate what a user has written."""
        meta = body["metadata"]
        version = (
            meta.get("generation"),
            dict(meta.get("labels") or {}),
            dict(meta.get("annotations") or {}),
        )
        known = self._known.get(meta["uid"])
        if known is None or version[0] is None or known[0] != version:
            known = self._known[meta["uid"]] = (version, judge(self._resource, body))
        return known[1]

    def forget(self, uid: str) -> None:
        """Drop what is remembered of an object that is gone."""
        self._known.pop(uid, None)


class AcceptedController:
    """The Kopf operator of one kind: parse, judge, hand over.

    ``hand_over`` calls a function in the event loop that the sink lives in.
    """

    def __init__(
        self,
        resource: type[Resource],
        sink: AcceptedSink,
        hand_over: Callable[..., object],
    ) -> None:
        self._resource = resource
        self._judge = Judge(resource)
        self._sink = sink
        self._hand_over = hand_over

    def register(self, registry: "kopf.OperatorRegistry") -> None:
        """Add the handler to a registry, for another start of Kopf: it tells of all objects anew.

        Of those that were deleted since it ended nobody is told.
        """
        self._judge = Judge(self._resource)
        self._hand_over(self._sink.forget_all)
        register_events(registry, self._resource, self.on_event)

    async def on_event(self, event: Mapping[str, Any], body: Mapping[str, Any], **_: Any) -> None:
        """Judge an object whenever it is seen, unless it is gone or already says so."""
        if event["type"] == "DELETED":
            self._judge.forget(body["metadata"]["uid"])
            self._hand_over(self._sink.forget, body["metadata"]["uid"])
            return
        verdict = self._judge.judge(body)
        if not _is_said(body, verdict):
            self._hand_over(self._sink.accept, self._resource, dict(body), verdict)


def _is_said(body: Mapping[str, Any], verdict: Verdict) -> bool:
    """Whether the object's status carries this verdict for its present generation."""
    status = body.get("status") or {}
    generation = body["metadata"].get("generation")
    return any(
        condition.get("type") == ACCEPTED
        and condition.get("reason") == verdict.reason
        and condition.get("message") == verdict.message
        and condition.get("observedGeneration") == generation
        for condition in status.get("conditions") or ()
    )
