"""Lists Jobs that are held by ``suspend`` and whose pods would opt in, for ``koord queue``.

Such a Job has no pods, so the planner knows nothing of it, and it has no place in the queue. Its
template is read as a pod would be, which tells its quota and its GPUs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from koord.answers.queue_view import Waiting, count_gpus
from koord.api.keys import operators
from koord.cli.connection import list_all, path_in
from koord.cli.leases import parse_time
from koord.core.engine.state import ClusterState
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import Reason
from koord.core.plugins.inter_pod import InterPod
from koord.kube.client import Client
from koord.kube.decode import MALFORMED
from koord.kube.errors import Forbidden
from koord.kube.translate.pods import PodTranslator
from koord.kube.wire import Condition, ObjectMeta, PodSpec, WirePod

_JOBS: Final = "/apis/batch/v1/jobs"


class _Template(msgspec.Struct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class _JobSpec(msgspec.Struct):
    suspend: bool | None = None
    parallelism: int | None = None
    template: _Template = msgspec.field(default_factory=_Template)


class _JobStatus(msgspec.Struct):
    conditions: list[Condition] | None = None


class HeldJob(msgspec.Struct):
    """A Job, reduced to what says that it is held, and what its pods would be."""

    metadata: ObjectMeta
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)

    @property
    def is_held(self) -> bool:
        ended = {
            condition.type
            for condition in self.status.conditions or ()
            if condition.status == "True"
        }
        return bool(self.spec.suspend) and ended.isdisjoint({"Complete", "Failed"})

    @property
    def since(self) -> float:
        for condition in self.status.conditions or ():
            if condition.type == "Suspended" and condition.status == "True":
                return parse_time(condition.last_transition_time) or 0.0
        created = self.metadata.creation_timestamp
        return 0.0 if created is None else created.timestamp()


@dataclass(frozen=True, slots=True)
class Suspended(Reason):
    """Somebody holds the Job."""

    namespace: str
    name: str
    code: ClassVar[str] = "Suspended"

    @override
    def _text(self) -> str:
        return "The Job is suspended, so it has no pods."

    @override
    def _advice(self) -> Iterator[str]:
        patch = '{"spec":{"suspend":false}}'
        yield f"To resume it: kubectl patch job -n {self.namespace} {self.name} -p '{patch}'"


async def list_held(client: Client, namespace: str) -> list[HeldJob] | None:
    """Return the suspended Jobs, where they may be listed; None if that is nowhere."""
    for path in (_JOBS, path_in(_JOBS, namespace)):
        try:
            return [
                held_job for held_job in await list_all(client, path, HeldJob) if held_job.is_held
            ]
        except Forbidden:
            continue
    return None


def view_held(state: ClusterState, jobs: list[HeldJob]) -> Iterator[Waiting]:
    """Yield those whose pods would opt in, by name."""
    translator = PodTranslator()
    for job in sorted(
        jobs, key=lambda held_job: (held_job.metadata.namespace, held_job.metadata.name)
    ):
        pod = _make_pod(job, translator)
        if pod is None or not _would_opt_in(pod, state):
            continue
        meta, count = job.metadata, 1 if job.spec.parallelism is None else job.spec.parallelism
        quota = state.quotas.quota_of(pod) if state.quotas.is_in_use else ""
        yield Waiting(
            position=0,
            kind="job",
            names=(f"{meta.namespace}/{meta.name}",),
            pods=0,
            required=count,
            reason=Suspended(meta.namespace, meta.name),
            since=job.since,
            quotas=(quota,) if quota else (),
            gpus=count * count_gpus(dict(pod.shape.requests)),
            priority=pod.priority,
        )


def _make_pod(job: HeldJob, translator: PodTranslator) -> Pod | None:
    """Return what a pod of the Job would be to the planner; None if it makes no sense."""
    template = job.spec.template
    meta = msgspec.structs.replace(
        template.metadata, name=job.metadata.name, namespace=job.metadata.namespace
    )
    for container in (*(template.spec.containers or ()), *(template.spec.init_containers or ())):
        container.resources = _complete(container.resources)
    try:
        return translator.translate(WirePod(meta, template.spec))
    except MALFORMED:
        return None


def _complete(resources: msgspec.Raw) -> msgspec.Raw:
    """Set requests that are left out to the limits, as the server does for pods."""
    try:
        given = msgspec.json.decode(bytes(resources) or b"{}", type=dict[str, Any])
        requests = {**(given.get("limits") or {}), **(given.get("requests") or {})}
    except MALFORMED:
        return resources
    return msgspec.Raw(msgspec.json.encode({**given, "requests": requests}))


def _would_opt_in(pod: Pod, state: ClusterState) -> bool:
    """By its template, or by the policy ``inject``, which gates what names a gang or a quota."""
    if pod.handling is not Handling.NOT_OURS:
        return True
    labels = state.plugin(InterPod).namespaces.get(pod.namespace, {})
    return operators.INJECT in labels and bool(pod.gang or pod.quota)
