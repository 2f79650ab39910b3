"""Says why a Job has no living pods: it is suspended, has failed, is complete, or has none yet.

A value made of the Job as the API has it, and of an event about its pods: events tell that pods
were evicted, once they are gone. That is best effort: events expire, and not everybody may read
them; they are read only when an answer would otherwise be that there is no such pod. Knows no
gang, no plan.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from koord.answers.explain import PlacementState
from koord.answers.reading import Target, TargetNotFoundError
from koord.cli.connection import path_in
from koord.core.model.text import cut, format_age, plural, suggest
from koord.kube.client import Client
from koord.kube.errors import ApiError, Forbidden, KubeError, NotFound
from koord.kube.wire import Identified, ObjectList, WireCondition, WireObjectMeta

_JOBS: Final = "/apis/batch/v1/jobs"
_SOME: Final = "500"
"""Jobs whose names may be meant."""
_SLOW_SECONDS: Final = 10.0
"""Within which a controller makes the first pods of a Job."""
_FAILED: Final = ("Failed", "FailureTarget")
_HOLDERS: Final[Mapping[str, str]] = {
    "kueue.x-k8s.io/queue-name": "Kueue resumes it when its LocalQueue {} admits it",
    "scheduling.x-k8s.io/suspend": "koord-queue resumes it",
}
"""Keys of a suspended Job, and who else resumes it; {} is the value."""
COUNTED: Final = (
    "Evicted pods count against backoffLimit, unless a podFailurePolicy ignores DisruptionTarget: "
    "see docs/recipes/job.md (Job and Indexed Job)."
)


_EVENTS: Final = "/api/v1/events"


_MOST: Final = "500"


_WHAT: Final[Mapping[str, str]] = {"Preempted": "preempted", "OverEntitlement": "reclaimed"}
"""Reasons of the events on evicted pods, and what happened to the pods."""


@dataclass(frozen=True, slots=True, order=True)
class EvictionEvent:
    """That a pod was evicted, at ``time`` (seconds since the epoch), and why."""

    time: float
    pod: str
    reason: str
    note: str

    def text(self, now: float) -> str:
        """Say what happened to the pod."""
        return f"it was {_WHAT[self.reason]} {format_age(now - self.time)} ago: {self.note}"


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a Job without living pods. ``template`` is the metadata of its pods."""

    standing: PlacementState
    template: WireObjectMeta
    notes: tuple[str, ...]
    advice: tuple[str, ...] = ()
    has_failed: bool = False
    is_suspended: bool = False


async def read_job(
    client: Client, target: Target, now: float, *, has_pods: bool
) -> JobState | None:
    """Read the Job; None if there is none, but pods of it. Raises ``TargetNotFoundError``."""
    path = path_in(_JOBS, target.namespace)
    try:
        job = await client.get(f"{path}/{target.name}", Job)
    except (Forbidden, NotFound) as error:
        if has_pods:
            return None
        if isinstance(error, Forbidden):
            raise KubeError(_tell_forbidden(target)) from error
        raise TargetNotFoundError(
            f"there is no Job {target.name} in namespace {target.namespace}"
            f"{await _suggest(client, path, target.name)}"
        ) from error
    event = None
    if job.find(*_FAILED) is not None or (job.is_active and (job.status.failed or not has_pods)):
        event = await find_of_pods(client, target.namespace, f"{target.name}-")
    return describe_job(job, event, now)


def _tell_forbidden(target: Target) -> str:
    return (
        f"Job {target.key} has no pods, and you may not get jobs.batch (the ClusterRole koord-user "
        "has the right): whether it exists, is suspended or has failed is not known"
    )


async def _suggest(client: Client, path: str, name: str) -> str:
    try:
        objects = await client.get(path, ObjectList[Identified], {"limit": _SOME})
    except Forbidden:
        return ""
    return suggest(name, (item.metadata.name for item in objects.items or ()))


def describe_job(job: "Job", event: EvictionEvent | None, now: float) -> JobState:
    """Say why a Job has no living pods; ``event`` tells that one was evicted."""
    title = f"Job {job.metadata.namespace}/{job.metadata.name}"
    created = job.metadata.creation_timestamp
    eviction_notes: tuple[str, ...] = ()
    # Before it was created, another Job of this name had pods of such names.
    if event is not None and (created is None or event.time >= created.timestamp()):
        eviction_notes = (f"Of its pod {event.pod}: {event.text(now)}.", COUNTED)
    complete, failed = job.find("Complete"), job.find(*_FAILED)
    if complete is not None:
        note = f"{title} is complete: {plural(job.status.succeeded, 'pod')} succeeded."
        return JobState(PlacementState.ENDED, job.spec.template.metadata, (note,))
    if failed is not None:
        why = f"{failed.reason}: {failed.message}".strip(": ").removesuffix(".")
        notes = (f"{title} has failed: {cut(why)}.", *eviction_notes)
        again = ("It makes no more pods: delete it and create it again.",)
        return JobState(PlacementState.ENDED, job.spec.template.metadata, notes, again, True)
    note, advice = _tell_waiting(job, title, now)
    return JobState(
        PlacementState.WAITING,
        job.spec.template.metadata,
        (note, *eviction_notes),
        (advice,),
        is_suspended=bool(job.spec.suspend),
    )


def _tell_waiting(job: "Job", title: str, now: float) -> tuple[str, str]:
    """Return a statement about a Job that is neither complete nor failed, and what helps."""
    where = f"-n {job.metadata.namespace} {job.metadata.name}"
    created = job.metadata.creation_timestamp
    age = now - created.timestamp() if created is not None else 0.0
    if job.spec.suspend:
        keys = {**(job.metadata.annotations or {}), **(job.metadata.labels or {})}
        who = [text.format(keys[key]) for key, text in _HOLDERS.items() if key in keys]
        patch = f'kubectl patch job {where} -p \'{{"spec":{{"suspend":false}}}}\''
        resume = f"{'; '.join(who)}." if who else f"To resume it: {patch}"
        return f"{title} is suspended, so it has no pods.", resume
    if job.status.succeeded or job.status.failed:
        counts = f"{job.status.succeeded} succeeded, {job.status.failed} failed"
        wait = "Its controller creates others, after a pause that grows with each failure."
        return f"{title} has no pod that lives ({counts}).", wait
    why = f"If that lasts, kubectl describe job {where} says why."
    made = "has no pods yet" if age < _SLOW_SECONDS else "still has no pods"
    return f"{title} is {format_age(age)} old and {made}: its controller creates them.", why


class _JobTemplate(msgspec.Struct):
    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)


class _JobSpec(msgspec.Struct):
    suspend: bool | None = None
    template: _JobTemplate = msgspec.field(default_factory=_JobTemplate)


class _JobStatus(msgspec.Struct):
    conditions: list[WireCondition] | None = None
    succeeded: int = 0
    failed: int = 0


class Job(msgspec.Struct):
    """A Job, reduced to the fields that say why it has no pods."""

    metadata: WireObjectMeta
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)

    @property
    def is_active(self) -> bool:
        """Whether its controller makes pods."""
        return not self.spec.suspend and self.find("Complete", *_FAILED) is None

    def find(self, *types: str) -> WireCondition | None:
        """Return the first condition of one of these types that is true."""
        conditions = self.status.conditions or ()
        return next(
            (
                condition
                for condition in conditions
                if condition.type in types and condition.status == "True"
            ),
            None,
        )


async def find_of_pod(client: Client, namespace: str, name: str) -> EvictionEvent | None:
    """Return the last eviction of a pod of this name."""
    evictions = await _read(client, namespace, f"involvedObject.name={name}")
    return max(evictions, default=None)


async def find_of_pods(client: Client, namespace: str, prefix: str) -> EvictionEvent | None:
    """Return the last eviction of a pod whose name begins so."""
    pages = await asyncio.gather(*(_read(client, namespace, f"reason={name}") for name in _WHAT))
    evictions = (event for page in pages for event in page if event.pod.startswith(prefix))
    return max(evictions, default=None)


async def _read(client: Client, namespace: str, selector: str) -> Iterable[EvictionEvent]:
    params = {"fieldSelector": f"involvedObject.kind=Pod,{selector}", "limit": _MOST}
    try:
        page = await client.get(path_in(_EVENTS, namespace), ObjectList[ObjectEvent], params)
    except ApiError:
        return ()
    return [
        EvictionEvent(
            when.timestamp(), item.involved_object.name, item.reason, cut(item.message.rstrip("."))
        )
        for item in page.items or ()
        if item.reason in _WHAT and (when := item.when) is not None
    ]


class InvolvedObject(msgspec.Struct):
    """What an event is about."""

    name: str = ""


class ObjectEvent(msgspec.Struct, rename="camel"):
    """An event, reduced to what is told of it."""

    metadata: WireObjectMeta
    involved_object: InvolvedObject
    reason: str = ""
    message: str = ""
    event_time: datetime | None = None
    last_timestamp: datetime | None = None

    @property
    def when(self) -> datetime | None:
        return self.event_time or self.last_timestamp or self.metadata.creation_timestamp
