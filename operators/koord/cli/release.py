"""``koord release``: takes our gate off pods, and our finalizer off quotas.

It first names each pod that waits for the operators, gated or not, and what becomes of it.

For leaving, and for trials: nothing else removes the gate once the operators are gone. Each patch
names the uid and the gate, so that it fails as a whole if the pod has changed meanwhile.

The operators set the finalizer on a quota in use, and nobody else removes it: once they are gone,
deletions of such quotas, of their namespaces and of the definition would wait for ever. Finalizers
of others stay. While somebody leads, ours would come back, so that is refused.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
import typer

from koord.answers.leaders import DEFAULT_NAMESPACE
from koord.answers.reading import Target, TargetNotFoundError
from koord.api.gang import parse_pod_gang
from koord.api.keys import operators
from koord.cli.common import (
    NO_UNITS,
    Context,
    ExitCode,
    Kubeconfig,
    complete_namespace,
    fail,
    say,
    warn,
)
from koord.cli.connection import list_all, open_client, path_in
from koord.cli.find_target import JOB_LABEL
from koord.cli.leases import NAMES, get_lease, make_leader
from koord.cli.output import count_of
from koord.cli.owned_pods import find_owner
from koord.cli.queries import parse_target
from koord.core.model.text import listed, suggest
from koord.domains.placement import PODS
from koord.domains.quota import QUOTAS
from koord.kube.client import Client, Media
from koord.kube.errors import ApiError, KubeError, NotFound
from koord.kube.wire import ObjectList, WireObjectMeta
from koord.operators.names import QUOTA

_KINDS: Final = frozenset({"", "pod", "podgroup", "job"})
"""What pods say of themselves; empty for any of them. Other owners are looked up."""
_OWN_NO_PODS: Final = NO_UNITS | {"reservation"}
_AT_ONCE: Final = 16
_MAX_SHOWN: Final = 10
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_PROTECTED: Final = (
    "the policy koord-protect reserves that to the operators. Stop them first, and then remove it: "
    "kubectl delete validatingadmissionpolicybinding koord-protect"
)


class _Gate(msgspec.Struct):
    name: str


class _GatedPodSpec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""
    scheduling_gates: list[_Gate] | None = None
    node_name: str = ""


class _GatedPodStatus(msgspec.Struct):
    phase: str = ""


class _GatedPod(msgspec.Struct):
    metadata: WireObjectMeta
    spec: _GatedPodSpec
    status: _GatedPodStatus = msgspec.field(default_factory=_GatedPodStatus)

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def gate(self) -> int | None:
        """The place of our gate; None if there is none."""
        gates = [gate.name for gate in self.spec.scheduling_gates or ()]
        return gates.index(operators.PLACEMENT_GATE) if operators.PLACEMENT_GATE in gates else None

    @property
    def is_ours(self) -> bool:
        """Whether only the operators bind it."""
        return self.spec.scheduler_name == operators.SCHEDULER_NAME

    @property
    def waits_for_us(self) -> bool:
        waits = not self.spec.node_name and self.status.phase not in _ENDED
        return self.gate is not None or (self.is_ours and waits)

    def foresee(self) -> str:
        """Return what becomes of it without the operators, once the gate is off."""
        foreign = [scheduling_gate.name for scheduling_gate in self.spec.scheduling_gates or ()]
        foreign = [name for name in foreign if name != operators.PLACEMENT_GATE]
        if self.is_ours:
            owners = self.metadata.owner_references or ()
            owner = next((f"{owner.kind} {owner.name}" for owner in owners if owner.controller), "")
            remedy = f"give the template of {owner} another" if owner else "create it with another"
            return f"waits for ever, nobody else serves {operators.SCHEDULER_NAME}: {remedy} name"
        if foreign:
            return f"waits for the gate {foreign[0]}, which is not ours"
        return f"{self.spec.scheduler_name or 'default-scheduler'} places it, without its gang"

    @property
    def names(self) -> dict[str, str]:
        """Kind -> its name, that of its gang, and that of its Job, as far as there are any."""
        meta = self.metadata
        gang = parse_pod_gang(meta.namespace, meta.labels or {}, meta.annotations or {})
        names = {
            "pod": meta.name,
            "podgroup": "" if gang is None else gang.name,
            "job": (meta.labels or {}).get(JOB_LABEL, ""),
        }
        return {kind: name for kind, name in names.items() if name}


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """Which pods: by name of a pod, gang, Job or other owner, by labels, or all.

    ``kind`` is empty for any pod, gang or Job.
    """

    kind: str
    name: str
    selector: str
    namespace: str
    """Empty for that of the context."""
    everywhere: bool


@dataclass(frozen=True, slots=True)
class ReleaseOptions:
    """How: without asking, or only saying what would become of the pods."""

    yes: bool = False
    dry_run: bool = False


def release(  # noqa: PLR0917 - typer calls it, by name
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]",
            help="A pod, a gang or a Job, or KIND/NAME, such as pytorchjob/x: all its pods.",
        ),
    ] = "",
    selector: Annotated[str, typer.Option("--selector", "-l", help="Labels of the pods.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="All pods of the namespace.")] = False,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Its namespace.",
            show_default="of the context",
            autocompletion=complete_namespace,
        ),
    ] = "",
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")
    ] = False,
    finalizers: Annotated[
        bool,
        typer.Option(
            "--finalizers", help="Instead: our finalizer, off all quotas, so that they can go."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list each pod and what becomes of it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Take our gate off waiting pods, so that others place them.

    Gangs are not placed as a whole then. While the operators run they place such pods themselves;
    stop them first. Names the pods that wait for the operators, and what becomes of each, and asks
    before it changes anything.

    For example:

      koord release bert -n team-a

      koord release job/bert -n team-a

      koord release jobset/bert -n team-a

      koord release --all --all-namespaces --dry-run

      koord release --finalizers
    """
    if sum(map(bool, (name, selector, everything, finalizers))) != 1:
        raise typer.BadParameter("give a NAME, or -l SELECTOR, or --all, or --finalizers")
    way = ReleaseOptions(yes, dry_run)
    if finalizers:
        _run(_release_finalizers(kubeconfig, context, way))
        return
    kind = ""
    if "/" in name:
        kind, namespace, name = parse_target(name, namespace, "")
    if kind in _OWN_NO_PODS:
        raise typer.BadParameter("give a pod, podgroup, job or other owner of pods")
    wanted = ReleaseRequest(kind, name, selector, namespace, all_namespaces)
    _run(_release_pods(wanted, kubeconfig, context, way))


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)


async def _release_pods(
    wanted: ReleaseRequest, kubeconfig: str, context: str, way: ReleaseOptions
) -> None:
    async with open_client(kubeconfig, context) as (client, access):
        path = PODS.path
        if not wanted.everywhere:
            path = path_in(path, wanted.namespace or access.namespace)
        pods = await list_all(client, path, _GatedPod, wanted.selector)
        if wanted.kind in _KINDS:
            meant = _choose(pods, wanted)
        else:
            where = wanted.namespace or access.namespace
            meant = await _find_below(client, Target(wanted.kind, where, wanted.name), pods)
        waiting = [pod for pod in meant if pod.waits_for_us]
        _describe(waiting, len(waiting) if way.dry_run else _MAX_SHOWN)
        pods = [pod for pod in waiting if pod.gate is not None]
        if not pods:
            say("No pod with our gate is there; nothing to do.")
            return
        if way.dry_run:
            say(f"{count_of(len(pods), 'pod')} would be released.")
            return
        if not way.yes and not typer.confirm(f"Take the gate off {count_of(len(pods), 'pod')}?"):
            raise typer.Exit(ExitCode.NOT_WELL)
        await _patch_all(client, pods)


def _choose(pods: Sequence[_GatedPod], wanted: ReleaseRequest) -> Sequence[_GatedPod]:
    """Return the pods that are meant by name; ends the command if there are none."""
    if not wanted.name:
        return pods

    def names_of(pod: _GatedPod) -> set[str]:
        return {name for kind, name in pod.names.items() if wanted.kind in {"", kind}}

    named = [pod for pod in pods if wanted.name in names_of(pod)]
    if not named:
        meant = suggest(wanted.name, {name for pod in pods for name in names_of(pod)})
        what = wanted.kind or "pod, gang or Job"
        fail(f"no {what} here is named {wanted.name}{meant}", ExitCode.USAGE)
    return named


async def _find_below(
    client: Client, written: Target, pods: Sequence[_GatedPod]
) -> Sequence[_GatedPod]:
    """Return the pods below an object of any kind; ends the command if it does not exist."""
    try:
        owner = await find_owner(client, written)
    except TargetNotFoundError as error:
        fail(str(error), ExitCode.USAGE)
    if owner.unread:
        warn(f"you may not list {listed(owner.unread)}: pods below these are not found")
    owned = {pod.metadata.uid for pod in owner.pods}
    return [pod for pod in pods if pod.metadata.uid in owned]


def _describe(waiting: Sequence[_GatedPod], shown: int) -> None:
    for pod in waiting[:shown]:
        say(f"pod {pod.key}: {pod.foresee()}")
    if len(waiting) > shown:
        say(f"… and {len(waiting) - shown} more; --dry-run lists all")
    ours = sum(pod.is_ours for pod in waiting)
    if ours:
        warn(
            f"{count_of(ours, 'pod')} of them name {operators.SCHEDULER_NAME}, which only the "
            "operators serve, and which cannot be changed: operators that run place them all the "
            "same. Have their owners create them again with another schedulerName"
        )


async def _patch_all(client: Client, pods: Sequence[_GatedPod]) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def patch(pod: _GatedPod) -> str:
        async with slots:
            return await _patch(client, pod)

    problems = [name for name in await asyncio.gather(*map(patch, pods)) if name]
    say(f"{count_of(len(pods) - len(problems), 'pod')} released.")
    if problems:
        hint = (
            _PROTECTED if any("koord-protect" in problem for problem in problems) else problems[0]
        )
        fail(f"{count_of(len(problems), 'pod')} could not be released: {hint}", ExitCode.UNREADABLE)


async def _patch(client: Client, pod: _GatedPod) -> str:
    """Remove the gate; return what is wrong, or nothing."""
    at = f"/spec/schedulingGates/{pod.gate}"
    body: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": f"{at}/name", "value": operators.PLACEMENT_GATE},
        {"op": "remove", "path": at},
    ]
    path = f"{path_in(PODS.path, pod.metadata.namespace)}/{pod.metadata.name}"
    try:
        await client.patch(path, body, Media.JSON_PATCH)
    except ApiError as error:
        return str(error)
    return ""


_LEADERS: Final = (NAMES[0], f"koord-{QUOTA}")
"""Leases of the processes that set the finalizer."""


class _Quota(msgspec.Struct):
    metadata: WireObjectMeta

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


async def _release_finalizers(kubeconfig: str, context: str, way: ReleaseOptions) -> None:
    async with open_client(kubeconfig, context) as (client, _):
        held = await _list_held(client)
        for quota in held:
            going = ", which is being deleted" if quota.metadata.deletion_timestamp else ""
            say(f"quota {quota.key}{going}")
        if not held:
            say("No quota with our finalizer is there; nothing to do.")
            return
        if way.dry_run:
            say(f"The finalizer would be taken off {count_of(len(held), 'quota')}.")
            return
        await _check_that_nobody_leads(client)
        if not way.yes and not typer.confirm("Take our finalizer off all of these?"):
            raise typer.Exit(ExitCode.NOT_WELL)
        problems = [
            name
            for name in await asyncio.gather(*(_patch_finalizers(client, q) for q in held))
            if name
        ]
        say(f"{count_of(len(held) - len(problems), 'quota')} released.")
        if problems:
            fail(problems[0], ExitCode.UNREADABLE)


async def _list_held(client: Client) -> list[_Quota]:
    try:
        objects = await client.get(QUOTAS.path, ObjectList[_Quota])
    except NotFound:
        return []
    return [
        item for item in objects.items or () if operators.IN_USE in (item.metadata.finalizers or ())
    ]


async def _check_that_nobody_leads(client: Client) -> None:
    for name in _LEADERS:
        lease = await get_lease(client, DEFAULT_NAMESPACE, name)
        leader = make_leader(lease, time.time()) if lease is not None else None
        if leader is not None and leader.holder:
            fail(
                f"{leader.holder} leads and would set it again; stop the operators first: "
                f"kubectl delete deployment --namespace {DEFAULT_NAMESPACE} --all",
                ExitCode.NOT_WELL,
            )


async def _patch_finalizers(client: Client, quota: _Quota) -> str:
    """Remove the finalizer; return what is wrong, or nothing."""
    meta = quota.metadata
    at = f"/metadata/finalizers/{(meta.finalizers or []).index(operators.IN_USE)}"
    body: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": at, "value": operators.IN_USE},
        {"op": "remove", "path": at},
    ]
    try:
        await client.patch(
            f"{path_in(QUOTAS.path, meta.namespace)}/{meta.name}", body, Media.JSON_PATCH
        )
    except NotFound:
        return ""
    except ApiError as error:
        return str(error)
    return ""
