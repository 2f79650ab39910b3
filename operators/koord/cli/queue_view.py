"""Reads the cluster and prints what waits: ``koord queue``. Not imported for ``--help``.

Jobs that are held by ``suspend`` and whose pods would opt in are listed, too. Such a Job has no
pods, so the planner knows nothing of it, and it has no place in the queue; its template is read as
a pod would be, which tells its quota and its GPUs.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
from rich.console import RenderableType

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.gaps import head_of, list_warnings
from koord.answers.gpus import count_gpus
from koord.answers.outlook import limit_time
from koord.answers.queue_view import QueueEntry
from koord.answers.standing import BACKOFF, NEVER_FITS, RESERVED, QueueStanding, tell_time
from koord.answers.waiting import JobSuspended, find_waiting
from koord.api.keys import operators
from koord.api.lint_files import INJECT_ALL
from koord.cli.cluster import read_without_target, refuse_unknown_namespace, refuse_without_pods
from koord.cli.common import Output, warn
from koord.cli.connection import list_all, open_client, path_in
from koord.cli.leases import parse_time
from koord.cli.output import count_of, make_table, print_in
from koord.core.engine.state import ClusterState
from koord.core.model.pods import Handling, Pod
from koord.core.model.text import format_age, named
from koord.core.plugins.inter_pod import InterPod
from koord.domains.registry import make_pod_translator
from koord.kube.client import Client
from koord.kube.decode import MALFORMED
from koord.kube.errors import Forbidden, KubeError
from koord.kube.translate.pods import PodTranslator
from koord.kube.wire import PodSpec, WireCondition, WireObjectMeta, WirePod

_JOBS_UNKNOWN: Final = AnswerGap("jobs.batch", GapCause.NO_RIGHT, "which suspended Jobs wait")


MOST_SECONDS: Final = 1.0
"""What foreseeing starts may take."""
_JOBS: Final = "/apis/batch/v1/jobs"


class _SuspendedJobTemplate(msgspec.Struct):
    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class _SuspendedJobSpec(msgspec.Struct):
    suspend: bool | None = None
    parallelism: int | None = None
    template: _SuspendedJobTemplate = msgspec.field(default_factory=_SuspendedJobTemplate)


class _SuspendedJobStatus(msgspec.Struct):
    conditions: list[WireCondition] | None = None


class SuspendedJob(msgspec.Struct):
    """A Job, reduced to what says that it is suspended, and what its pods would be."""

    metadata: WireObjectMeta
    spec: _SuspendedJobSpec = msgspec.field(default_factory=_SuspendedJobSpec)
    status: _SuspendedJobStatus = msgspec.field(default_factory=_SuspendedJobStatus)

    @property
    def is_suspended(self) -> bool:
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


def show(namespace: str, kubeconfig: str, context: str, *, output: Output) -> None:
    reading, target = read_without_target(kubeconfig, context, namespace)
    refuse_without_pods(reading, target)
    refuse_unknown_namespace(reading, namespace)
    suspended = read_suspended(kubeconfig, context, target.namespace)
    more = () if suspended is not None else (_JOBS_UNKNOWN,)
    warnings = list_warnings(reading, target, more)
    for warning in warnings:
        warn(warning)
    waiting_units = (
        *find_waiting(reading, target, make_time_limit()),
        *view_suspended(reading.state, suspended or []),
    )
    shown = [
        waiting_unit
        for waiting_unit in waiting_units
        if not namespace or namespace in waiting_unit.namespaces
    ]
    now = time.time()
    print_in(
        output,
        head_of("Queue", reading, target, more),
        document=lambda: {
            "waiting": encode(shown),
            "warnings": list(warnings),
        },
        names=lambda: (
            f"{waiting_unit.kind}/{name}" for waiting_unit in shown for name in waiting_unit.names
        ),
        text=lambda: draw(shown, now, is_wide=output is Output.WIDE),
    )


def make_time_limit(seconds: float = MOST_SECONDS) -> Callable[[], bool]:
    """Return what ends a look ahead in time."""
    return limit_time(seconds, time.monotonic)


def read_suspended(kubeconfig: str, context: str, namespace: str) -> list[SuspendedJob] | None:
    """Return Jobs that ``suspend`` holds; None if they cannot be read."""

    async def read() -> list[SuspendedJob] | None:
        async with open_client(kubeconfig, context) as (client, _):
            return await list_suspended(client, namespace)

    try:
        return asyncio.run(read())
    except KubeError:
        return None


def draw(shown: Sequence[QueueEntry], now: float, *, is_wide: bool) -> Iterator[RenderableType]:
    if not shown:
        yield "Nothing waits."
        return
    more = ("IN QUEUE", "AHEAD", "PODS", "NEEDED", "MESSAGE") if is_wide else ()
    table = make_table(
        "POS", "UNIT", "QUEUE", "PRIO", "AGE", "ASK", "STATE", "START", "CERTAINTY", *more,
        right=("POS", "PRIO", "AGE", "ASK", "IN QUEUE", "AHEAD", "PODS", "NEEDED"),
        padding=2,
    )  # fmt: skip
    for waiting_unit in shown:
        start, certainty = _tell_start(waiting_unit.standing, now)
        table.add_row(
            str(waiting_unit.position or ""),
            f"{waiting_unit.kind}/{named(waiting_unit.names, 2)}",
            named(waiting_unit.quotas, 2),
            str(waiting_unit.priority),
            format_age(now - waiting_unit.since),
            _tell_ask(waiting_unit),
            _describe(waiting_unit),
            start,
            certainty,
            *(_details_of(waiting_unit) if is_wide else ()),
        )
    yield table


def _details_of(waiting_unit: QueueEntry) -> tuple[str, ...]:
    standing, message = waiting_unit.standing, waiting_unit.reason.text()
    in_queue = ""
    if standing is not None:
        in_queue = f"{standing.position}/{standing.waiting}" if standing.position else ""
        message = f"{message} {standing.text()}"
    return (
        in_queue,
        str(waiting_unit.gpus_ahead) if waiting_unit.position else "",
        str(waiting_unit.pods),
        str(waiting_unit.required),
        message,
    )


def _tell_ask(waiting_unit: QueueEntry) -> str:
    if waiting_unit.gpus:
        return count_of(waiting_unit.gpus, "GPU")
    return count_of(waiting_unit.required, "pod")


def _tell_start(standing: QueueStanding | None, now: float) -> tuple[str, str]:
    """Return when a unit starts, and how certain that is."""
    if standing is None or not standing.is_queued or not standing.position:
        return "", ""
    if standing.latest_start is not None:
        return f"by {tell_time(now, standing.latest_start)}", standing.certainty
    if standing.expected_start is not None:
        return f"~{tell_time(now, standing.expected_start)}", standing.certainty
    return "", standing.certainty


def _describe(waiting_unit: QueueEntry) -> str:
    """Return the reason; a unit that fits is about to be placed."""
    standing = waiting_unit.standing
    if standing is not None and standing.state in {RESERVED, BACKOFF, NEVER_FITS}:
        return standing.state
    return "Placeable" if waiting_unit.reason.is_placed else waiting_unit.reason.code


async def list_suspended(client: Client, namespace: str) -> list[SuspendedJob] | None:
    """Return the suspended Jobs, where they may be listed; None if that is nowhere."""
    for path in (_JOBS, path_in(_JOBS, namespace)):
        try:
            return [job for job in await list_all(client, path, SuspendedJob) if job.is_suspended]
        except Forbidden:
            continue
    return None


def view_suspended(state: ClusterState, jobs: list[SuspendedJob]) -> Iterator[QueueEntry]:
    """Yield those whose pods would opt in, by name."""
    translator = make_pod_translator()
    for job in sorted(jobs, key=lambda job: (job.metadata.namespace, job.metadata.name)):
        pod = _make_pod(job, translator)
        if pod is None or not _would_opt_in(pod, state):
            continue
        meta, count = job.metadata, 1 if job.spec.parallelism is None else job.spec.parallelism
        quota = state.quotas.quota_of(pod) if state.quotas.is_in_use else ""
        yield QueueEntry(
            position=0,
            kind="job",
            names=(f"{meta.namespace}/{meta.name}",),
            pods=0,
            required=count,
            reason=JobSuspended(meta.namespace, meta.name),
            since=job.since,
            quotas=(quota,) if quota else (),
            gpus=count * count_gpus(dict(pod.shape.requests)),
            priority=pod.priority,
        )


def _make_pod(job: SuspendedJob, translator: PodTranslator) -> Pod | None:
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
    injects = labels.get(operators.INJECT)
    return injects == INJECT_ALL or (injects is not None and bool(pod.gang or pod.quota))
