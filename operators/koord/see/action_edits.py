"""What an action changes in an object, and whether it may: pure.

Nothing that runs is ended by an action. Knows no request and no API server.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from koord.api.gang import MOST_PRIORITY
from koord.api.keys import operators
from koord.runtime.reviews import ResourceRight

LONGEST_TIME: Final = 32
"""Characters of what is written as the time of a retry."""
_TRUE: Final = "true"
_SUSPEND: Final = "suspend"


class UnitAction(StrEnum):
    """What can be done to a unit."""

    HOLD = "hold"
    RELEASE = "release"
    PRIORITY = "priority"
    RETRY = "retry"


class ActionKind(NamedTuple):
    """Where objects of a kind are, and what can be done to them."""

    group: str
    version: str
    plural: str
    actions: frozenset[UnitAction]

    def path(self, namespace: str, name: str) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = f"namespaces/{quote(namespace, safe='')}"
        return f"{root}/{where}/{self.plural}/{quote(name, safe='')}"

    def right(self, namespace: str, name: str) -> ResourceRight:
        return ResourceRight("patch", self.group, self.plural, namespace, name)


JOB: Final = "job"
KINDS: Final = {
    "podgroup": ActionKind(
        "scheduling.sigs.k8s.io", "v1alpha1", "podgroups", frozenset(UnitAction)
    ),
    "pod": ActionKind("", "v1", "pods", frozenset(UnitAction) - {UnitAction.PRIORITY}),
    JOB: ActionKind("batch", "v1", "jobs", frozenset({UnitAction.HOLD, UnitAction.RELEASE})),
}


class _ActedMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _ActedSpec(msgspec.Struct, rename="camel"):
    suspend: bool | None = None


class _ActedStatus(msgspec.Struct, rename="camel"):
    ready: int | None = None


class SeenObject(msgspec.Struct):
    """What there is of an object, as far as actions look at it."""

    metadata: _ActedMeta
    spec: _ActedSpec = msgspec.field(default_factory=_ActedSpec)
    status: _ActedStatus = msgspec.field(default_factory=_ActedStatus)

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or {}


class ActionRefused(ValueError):  # noqa: N818 - says what is wrong
    """It would do more than an action may."""


@dataclass(frozen=True, slots=True)
class ActionQuestion:
    """What is to be done to what; ``version`` is that of the trial, empty for the trial itself."""

    action: UnitAction
    kind: str
    namespace: str
    name: str
    version: str = ""
    priority: int | None = None
    """The highest one with which it is to have its turn; None: that of its pods."""
    at: str = ""
    """When it was asked for, as a time of the API."""

    @property
    def is_trial(self) -> bool:
        return not self.version


@dataclass(frozen=True, slots=True)
class ObjectEdit:
    """Annotations to write, None for those to take off, and fields of the spec."""

    annotations: Mapping[str, str | None]
    spec: Mapping[str, Any] = field(default_factory=dict)

    def changes(self, seen: SeenObject) -> bool:
        """Whether an object differs from what this makes of it."""
        is_other = any(
            seen.annotations.get(key) != value for key, value in self.annotations.items()
        )
        return is_other or bool(self.spec and self.spec["suspend"] != bool(seen.spec.suspend))

    def patch(self, version: str) -> dict[str, Any]:
        """Return the merge patch of an object with this version."""
        metadata = {"resourceVersion": version, "annotations": dict(self.annotations)}
        return {"metadata": metadata, **({"spec": dict(self.spec)} if self.spec else {})}


def _hold(question: ActionQuestion, seen: SeenObject) -> ObjectEdit:
    annotations = {operators.QUEUE_HOLD: _TRUE}
    if question.kind != JOB:
        return ObjectEdit(annotations)
    if seen.status.ready:
        raise ActionRefused(
            f"{seen.status.ready} of its pods run, and to suspend it would end them: "
            f"kubectl patch job {question.name} -n {question.namespace} "
            """-p '{"spec":{"suspend":true}}'"""
        )
    return ObjectEdit(annotations, {"suspend": True})


def _release(question: ActionQuestion, seen: SeenObject) -> ObjectEdit:
    annotations = {operators.QUEUE_HOLD: None}
    # Of one that waits suspended the operators take that back, once all of it has room.
    is_resumed = question.kind == JOB and seen.annotations.get(operators.ADMISSION) != _SUSPEND
    return ObjectEdit(annotations, {"suspend": False} if is_resumed else {})


def _order(question: ActionQuestion, _: SeenObject) -> ObjectEdit:
    priority = question.priority
    return ObjectEdit({operators.QUEUE_PRIORITY: None if priority is None else str(priority)})


def _retry(question: ActionQuestion, _: SeenObject) -> ObjectEdit:
    return ObjectEdit({operators.QUEUE_RETRY: question.at})


_EDITS: Final[Mapping[UnitAction, Callable[[ActionQuestion, SeenObject], ObjectEdit]]] = {
    UnitAction.HOLD: _hold,
    UnitAction.RELEASE: _release,
    UnitAction.PRIORITY: _order,
    UnitAction.RETRY: _retry,
}


def make_edit(question: ActionQuestion, seen: SeenObject) -> ObjectEdit:
    """Return what an action changes in an object. Raises ``ActionRefused``."""
    return _EDITS[question.action](question, seen)


def is_priority(value: object) -> bool:
    """Whether a priority can be asked for; None takes it off."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value is None or (is_number and abs(value) <= MOST_PRIORITY)  # type: ignore[arg-type]
