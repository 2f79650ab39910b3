"""Jobs, and other owners of pods that can be suspended: from the wire to ``core.suspend``.

One row of ``OWNERS`` per kind says where it is listed, which field suspends it, and how the pods
that it makes are told from its spec.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from koord.api.keys import operators
from koord.api.run_terms import LONGEST_SECONDS
from koord.core.model.text import cut
from koord.core.model.vain_starts import VainStarts
from koord.core.suspend.model import HeldRoom, MemberSet, QueuedJob, find_problem
from koord.core.suspend.session import NAME
from koord.core.suspend.writes import read_held
from koord.kube.decode import MALFORMED
from koord.kube.kind import TranslatorOptions
from koord.kube.objects import ObjectRef
from koord.kube.plan_keys import PlanKeys, Trust
from koord.kube.translate.templates import TemplateReader
from koord.kube.wire import WireCondition, WireObjectMeta

_RECORDED: Final = (
    operators.HELD_ROOM,
    operators.HELD_ROOM_SIGNATURE,
    operators.ADMISSION_FAILURES,
)
_OTHERS: Final = ("kueue.x-k8s.io/queue-name", "scheduling.x-k8s.io/suspend")
"""Keys of Jobs that others resume."""
_JOB_CONTROLLER: Final = "kubernetes.io/job-controller"
_WRAPPERS: Final = frozenset({"CronJob"})
"""Controllers of Jobs that do not suspend them."""
_OVER: Final = frozenset({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"})
_GATES: Final = "gates"
"""Its pods wait with their gate, as those of other owners."""
_MODES: Final = frozenset({"", NAME, _GATES})
_MOST: Final = 1 << 31


class _WireJobSpec(Struct, rename="camel", gc=False):
    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    managed_by: str | None = None
    active_deadline_seconds: int | None = None
    template: Raw = Raw()


class _WireJobStatus(Struct, gc=False):
    conditions: list[WireCondition] | None = None
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = msgspec.field(name="startTime", default=None)


class WireJob(Struct, gc=False):
    """A Job: what decides which pods it would make, and whether it makes them."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: _WireJobSpec = msgspec.field(default_factory=_WireJobSpec)
    status: _WireJobStatus = msgspec.field(default_factory=_WireJobStatus)


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind of owners of pods that have a field to suspend them."""

    kind: str
    api_version: str
    plural: str
    title: str
    """As users write it: ``job/x``."""
    field: str
    """JSON pointer of what suspends it."""
    wire: type[Any]
    limit_of: Callable[[Any], int | None]
    """Returns for how many seconds it runs at most, from when it is resumed."""
    read_sets: Callable[[Any], Iterable[tuple[Raw, int]]]
    """Returns templates of pods, and how many of each it makes at once."""
    is_suspended: Callable[[Any], bool]
    is_over: Callable[[Any], bool]
    """Whether it makes no more pods, or is for others to resume."""
    ended: Callable[[Any], int]
    """How many of its pods have ended."""
    started_at: Callable[[Any], datetime | None]
    """From when on its limit counts."""


def _read_job_sets(job: WireJob) -> Iterable[tuple[Raw, int]]:
    """Return the template, with as many pods as may run in parallel and are not done."""
    spec = job.spec
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    left = _MOST if spec.completions is None else spec.completions - job.status.succeeded
    yield spec.template, max(0, min(parallelism, left))


def _is_job_over(job: WireJob) -> bool:
    conditions = job.status.conditions or ()
    is_done = any(each.type in _OVER and each.status == "True" for each in conditions)
    return is_done or job.spec.managed_by not in {None, _JOB_CONTROLLER}


JOB: Final = OwnerKind(
    "Job",
    "batch/v1",
    "jobs",
    "job",
    "/spec/suspend",
    WireJob,
    lambda job: job.spec.active_deadline_seconds,
    _read_job_sets,
    lambda job: bool(job.spec.suspend),
    _is_job_over,
    lambda job: job.status.succeeded + job.status.failed,
    lambda job: job.status.start_time,
)
OWNERS: Final = (JOB,)
_BY_TITLE: Final = {owner.title: owner for owner in OWNERS}
_any_decoder: Final = msgspec.json.Decoder(Any)


def ref_of_job(job: QueuedJob) -> ObjectRef:
    owner = _BY_TITLE[job.kind]
    return ObjectRef(owner.api_version, owner.kind, owner.plural, job.name, job.uid, job.namespace)


def _find_end(owner: OwnerKind, wire: Any) -> int | None:
    """Return when an object that runs is ended by its own limit."""
    limit, start = owner.limit_of(wire), owner.started_at(wire)
    if limit is None or limit < 0 or start is None:
        return None
    return int(start.timestamp()) + min(limit, LONGEST_SECONDS)


class JobTranslator:
    """Translates the owners of one kind, and keeps the condition of ours that they show."""

    def __init__(self, owner: OwnerKind, options: TranslatorOptions) -> None:
        self._owner = owner
        self._templates = TemplateReader(options)
        self._plans = options.plans or PlanKeys()
        self._conditions: dict[str, list[dict[str, Any]]] = {}

    def forget(self, job: QueuedJob) -> None:
        self._conditions.pop(job.uid, None)

    def status_of(self, uid: str) -> dict[str, Any] | None:
        """Return the conditions of a Job that we may have written; None if it is gone."""
        conditions = self._conditions.get(uid)
        return None if conditions is None else {"conditions": conditions}

    def translate(self, wire: Any) -> QueuedJob:
        """Translate an object. Raises ValueError if its template is malformed."""
        meta, owner = wire.metadata, self._owner
        annotations: Mapping[str, str] = meta.annotations or {}
        is_suspended = owner.is_suspended(wire)
        conditions = wire.status.conditions or ()
        shown = [condition for condition in conditions if condition.type == operators.PLACED]
        self._conditions[meta.uid] = msgspec.to_builtins(shown)
        held, mode = (
            self._read_held(meta.uid, annotations),
            annotations.get(operators.ADMISSION, ""),
        )
        sets: tuple[MemberSet, ...] = ()
        if is_suspended or held is not None:
            limit = owner.limit_of(wire)
            read = (self._read_set(meta, limit, *part) for part in owner.read_sets(wire))
            sets = tuple(made for made in read if made.count)
        return QueuedJob(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            kind=owner.title,
            path=f"/apis/{owner.api_version}/namespaces/{meta.namespace}/{owner.plural}/{meta.name}",
            field=owner.field,
            sets=sets,
            is_suspended=is_suspended,
            is_over=owner.is_over(wire) or not _is_free(meta),
            mode=mode if mode in _MODES else NAME,
            is_kept=annotations.get(operators.QUEUE_HOLD) == "true",
            generation=meta.generation,
            created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
            ended=owner.ended(wire),
            ends_at=None if is_suspended else _find_end(owner, wire),
            recorded=tuple((key, annotations[key]) for key in _RECORDED if key in annotations),
            held=held,
            failures=_read_failures(annotations.get(operators.ADMISSION_FAILURES, "")),
            problem=(_find_bad_mode(mode) or find_problem(sets)) if is_suspended else "",
        )

    def _read_set(self, meta: WireObjectMeta, limit: int | None, raw: Raw, count: int) -> MemberSet:
        template = self._templates.read(meta, bytes(raw), limit)
        return MemberSet(template.pod, count, template.priority_class)

    def _read_held(self, uid: str, annotations: Mapping[str, str]) -> HeldRoom | None:
        text = annotations.get(operators.HELD_ROOM, "")
        signature = annotations.get(operators.HELD_ROOM_SIGNATURE, "")
        if not text or self._plans.judge(uid, text, signature) is Trust.NONE:
            return None
        return read_held(_read_json(text))


def _find_bad_mode(mode: str) -> str:
    """Return what is wrong with an annotation that says neither mode; empty for nothing."""
    if mode in _MODES:
        return ""
    return f"annotation {operators.ADMISSION} must be {NAME} or {_GATES}: {cut(mode)}"


def _is_free(meta: WireObjectMeta) -> bool:
    """Whether nobody else suspends and resumes an object, and it is not being deleted."""
    keys = {*(meta.annotations or ()), *(meta.labels or ())}
    owners = (owner for owner in meta.owner_references or () if owner.controller)
    is_owned = any(owner.kind not in _WRAPPERS for owner in owners)
    return meta.deletion_timestamp is None and not is_owned and keys.isdisjoint(_OTHERS)


def _read_failures(text: str) -> VainStarts | None:
    """Return the failures that an annotation records; one that says nothing sensible is none."""
    value = _read_json(text)
    count, moment = (value.get("count"), value.get("at")) if isinstance(value, dict) else (0, 0)
    if not isinstance(count, int) or not isinstance(moment, int) or count < 1:
        return None
    return VainStarts(count, float(moment))


def _read_json(text: str) -> Any:
    try:
        return _any_decoder.decode(text) if text else None
    except MALFORMED:
        return None
