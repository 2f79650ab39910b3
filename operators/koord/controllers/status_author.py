"""The author of the status of one kind: verdict and status are written by it alone, in one patch.

Kopf shows the objects. They are validated as the API server shows them: whether spec and
annotations hold. The verdict is a part of the status: the condition ``Accepted``, or, of a
PodGroup, ``SpecValid``. What valid resources *do* is decided elsewhere: a policy says what else
their status is. An object is written only while Kopf runs, once it has been shown. What a policy
says of one that was not shown yet is dropped: it is asked again then.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Any, Final, Generic, Protocol, TypeVar

from koord.api.annotations import find_problems
from koord.api.parse import InvalidObject, Problem, parse
from koord.api.quotaprofile import ElasticQuotaProfile, find_policy_problems
from koord.api.resource import Resource
from koord.core.gang.reasons import InconsistentGroup, MissingGang
from koord.core.gang.status import ConditionType
from koord.core.quota.status import QuotaCondition
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import ObjectRef
from koord.kube.status import ConditionPatch, StatusPatch, StatusWriter, conditions_of

ACCEPTED: Final = "Accepted"
VALID: Final = "Valid"
INVALID: Final = "Invalid"


@dataclass(frozen=True, slots=True)
class Validation:
    """Whether an object is valid; ``problems`` say why not, field first."""

    problems: tuple[Problem, ...] = ()

    @property
    def reason(self) -> str:
        """The reason of the condition."""
        return INVALID if self.problems else VALID

    @property
    def message(self) -> str:
        """The message of the condition."""
        return "; ".join(map(str, self.problems)) or "the object is valid"


def judge(resource: type[Resource], body: Mapping[str, Any]) -> Validation:
    """Validate what a user has written: spec and annotations, not the status."""
    parsed = parse(resource, {key: value for key, value in body.items() if key != "status"})
    if isinstance(parsed, InvalidObject):
        return Validation(parsed.problems)
    annotations = parsed.metadata.annotations
    is_profile = resource is ElasticQuotaProfile
    return Validation(
        (*find_problems(annotations), *(find_policy_problems(annotations) if is_profile else ()))
    )


class Validator:
    """Validates each version of an object once: most events only change its status.

    While the generation stays, a user can only have changed labels and annotations.
    """

    def __init__(self, resource: type[Resource]) -> None:
        self._resource = resource
        self._validations: dict[str, tuple[object, Validation]] = {}
        """Object uid -> the version that was validated last, and its validation."""

    def judge(self, body: Mapping[str, Any]) -> Validation:
        meta = body["metadata"]
        version = meta.get("generation"), _digest(meta.get("labels"), meta.get("annotations"))
        cached = self._validations.get(meta["uid"])
        if cached is None or version[0] is None or cached[0] != version:
            cached = self._validations[meta["uid"]] = (version, judge(self._resource, body))
        return cached[1]

    def forget(self, uid: str) -> None:
        self._validations.pop(uid, None)


def _digest(*texts: Mapping[str, str] | None) -> bytes:
    """Return what tells texts apart; annotations may have a quarter of a megabyte per object."""
    items = [sorted((text or {}).items()) for text in texts]
    return blake2s(json.dumps(items).encode(), digest_size=16).digest()


def is_said(body: Mapping[str, Any], validation: Validation) -> bool:
    """Whether the status of an object has this validation of its present generation."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == ACCEPTED
        and condition.get("reason") == validation.reason
        and condition.get("message") == validation.message
        and condition.get("observedGeneration") == body["metadata"].get("generation")
        for condition in conditions
    )


VALIDATING: Final = "Validating"
"""The action in events about settings that are not in force."""

_ALARMS: Final = frozenset(
    {
        (ConditionType.SPEC_VALID, False),
        (ConditionType.QUORUM_REACHED, False),
        (ConditionType.DEGRADED, True),
        (ConditionType.TIMEOUT, True),
        (QuotaCondition.CONFIG_INVALID, True),
        (QuotaCondition.TERMINATING, True),
        (ACCEPTED, False),
    }
)
"""Type and status of conditions that a user has to act on: they are written without delay."""
_INVALID: Final[Mapping[str, bool]] = {
    str(ConditionType.SPEC_VALID): False,
    str(QuotaCondition.CONFIG_INVALID): True,
}
"""Conditions about settings -> their status if those are not in force; that has an event, too."""
_TOLD_BY_PODS: Final = frozenset({InconsistentGroup.code, MissingGang.code})
"""Gangs of a group come one after another; that has an event on their pods if it lasts."""

K = TypeVar("K", bound=Hashable)


class HasStatus(Protocol):
    """Every value of the core whose status is written here."""

    @property
    def uid(self) -> str:
        """``metadata.uid`` of the object."""

    @property
    def generation(self) -> int:
        """``metadata.generation`` of the object."""


T = TypeVar("T", bound=HasStatus)


@dataclass(slots=True)
class ShownObject(Generic[K]):
    """An object as Kopf has shown it last."""

    key: K
    ref: ObjectRef
    generation: int | None
    validation: Validation
    status: Mapping[str, Any] | None
    """What it said then; None once its policy has spoken."""

    def verdict(self) -> ConditionPatch:
        validation = self.validation
        return ConditionPatch(
            ACCEPTED,
            not validation.problems,
            validation.reason,
            validation.message,
            self.generation,
        )


@dataclass(slots=True)
class StatusAuthor(Generic[K, T]):
    """Writes the status of one kind; ``key_of`` returns the key of its policy for metadata.

    ``enqueue`` has the policy look at a key. Of kinds that have the condition ``Accepted`` it is
    part of each status.
    """

    resource: type[Resource]
    writer: StatusWriter
    ref_of: Callable[[T], ObjectRef]
    key_of: Callable[[Mapping[str, Any]], K]
    events: EventRecorder
    has_verdict: bool = True
    enqueue: Callable[[K], None] = field(default=lambda _: None)
    is_open: bool = False
    """Whether Kopf runs."""
    _shown: dict[str, ShownObject[K]] = field(default_factory=dict)
    _unsaid: dict[K, set[str]] = field(default_factory=dict)
    """Key -> uids of objects whose policy has not spoken since they were shown."""

    # --- what Kopf's handlers say ---------------------------------------------------------------

    def open(self) -> None:
        """Begin: Kopf runs, and is about to show all objects."""
        self._shown.clear()
        self._unsaid.clear()
        self.is_open = True

    def close(self) -> None:
        """End: Kopf has stopped, so nothing is known to be up to date."""
        self.is_open = False
        self._shown.clear()
        self._unsaid.clear()

    def show(self, body: Mapping[str, Any], validation: Validation) -> None:
        """Take an object that is new, was changed, or whose status does not say the verdict."""
        meta, names = body["metadata"], self.resource.names
        key, uid = self.key_of(meta), meta["uid"]
        ref = ObjectRef(
            names.api_version,
            names.kind,
            names.plural,
            meta["name"],
            uid,
            meta.get("namespace", ""),
        )
        status = body.get("status") or {}
        self._shown[uid] = ShownObject(key, ref, meta.get("generation"), validation, status)
        self._unsaid.setdefault(key, set()).add(uid)
        self.enqueue(key)

    def forget(self, body: Mapping[str, Any]) -> None:
        """Drop what is remembered of a deleted object."""
        shown = self._shown.pop(body["metadata"]["uid"], None)
        if shown is not None:
            self._note_said(shown)

    # --- what the policy says -------------------------------------------------------------------

    def validation_of(self, uid: str) -> Validation | None:
        """Return the verdict on an object; None before Kopf has shown it."""
        shown = self._shown.get(uid)
        return None if shown is None else shown.validation

    def status_of(self, uid: str) -> Mapping[str, Any] | None:
        """Return the status that Kopf has shown; None once the policy has spoken."""
        shown = self._shown.get(uid)
        return None if shown is None else shown.status

    def awaits(self, uid: str) -> bool:
        """Whether an object was shown since its policy has spoken last."""
        return self.status_of(uid) is not None

    def write_status(
        self,
        value: T,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
        metadata: Mapping[str, Any] | None = None,
        /,
        *,
        is_urgent: bool = False,
    ) -> None:
        """Set these fields and conditions of the status, and this metadata, and no others."""
        shown = self._shown.get(value.uid)
        if shown is None:
            return
        self._note_said(shown)
        ref = self.ref_of(value)
        self._emit(ref, conditions)
        if self.has_verdict:
            conditions = (shown.verdict(), *conditions)
        is_urgent |= any((condition.type, condition.status) in _ALARMS for condition in conditions)
        fields = {**fields, "observedGeneration": value.generation}
        self.writer.submit(ref, StatusPatch(conditions, fields, is_urgent, metadata or {}))

    def settle(self, key: K) -> None:
        """Write the verdict on objects of which the policy says nothing: they cannot be decoded.

        The rest of their status stays: it may hold the last valid settings.
        """
        for uid in tuple(self._unsaid.get(key, ())):
            shown = self._shown[uid]
            if self.has_verdict:
                fields, kept = keep_shown(shown.status or {})
                conditions = (shown.verdict(), *kept)
                is_urgent = bool(shown.validation.problems)
                self.writer.submit(shown.ref, StatusPatch(conditions, fields, is_urgent))
            self._unsaid[key].discard(uid)
        self._unsaid.pop(key, None)

    def _note_said(self, shown: ShownObject[K]) -> None:
        shown.status = None
        self._unsaid.get(shown.key, set()).discard(shown.ref.uid)

    def _emit(self, ref: ObjectRef, conditions: tuple[ConditionPatch, ...]) -> None:
        for condition in conditions:
            if condition.status is not _INVALID.get(condition.type):
                if condition.type in _INVALID:
                    self.events.forget(ref, VALIDATING)
            elif condition.reason not in _TOLD_BY_PODS:
                self.events.record(
                    ref,
                    EventType.WARNING,
                    action=VALIDATING,
                    reason=condition.reason,
                    note=condition.message,
                )


def keep_shown(status: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[ConditionPatch, ...]]:
    """Return fields and conditions of a status, but for the verdict, to be written again."""
    fields = {name: value for name, value in status.items() if name != "conditions"}
    shown = conditions_of(status).items()
    return fields, tuple(read_condition(of) for kind, of in shown if kind != ACCEPTED)


def read_condition(shown: Mapping[str, Any]) -> ConditionPatch:
    return ConditionPatch(
        str(shown["type"]),
        shown.get("status") == "True",
        str(shown.get("reason", "")),
        str(shown.get("message", "")),
        shown.get("observedGeneration"),
    )
