"""Finds the pods of an object of any kind, and says why it has none.

Owners are followed upwards from the pods, by uid and through other pods, so that no rule per kind
is needed: a pod belongs to whatever its controller belongs to. What lies between is read as
metadata, one list per kind. What may not be listed is named: pods below it are not found.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from koord.answers.explain import PlacementState
from koord.answers.reading import Target, TargetNotFoundError
from koord.api.untyped import to_list, to_map
from koord.cli.connection import list_all, path_in
from koord.cli.job_state import JobState
from koord.cli.served_kinds import (
    ServedKind,
    UnknownKindError,
    find_served,
    list_namesakes,
    read_served_kinds,
)
from koord.core.model.text import cut, format_age, suggest
from koord.domains.placement import PODS
from koord.kube.client import Client
from koord.kube.errors import ApiError, Forbidden, Garbled, KubeError, NotFound
from koord.kube.wire import Identified, ObjectList, WireObjectMeta, WireOwnerReference

_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_MOST_STEPS: Final = 8
"""From a pod upwards: LeaderWorkerSets need four."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_OVER: Final = ("Succeeded", "Complete", "Completed", "Failed", "Finished")
"""Conditions of owners that make no more pods."""
_SOME: Final = {"limit": "500"}


class _OwnedPodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _OwnedPodStatus(msgspec.Struct):
    phase: str = ""


class OwnedPod(msgspec.Struct):
    """A pod, reduced to whose it is, and whether it lives and has a node."""

    metadata: WireObjectMeta
    spec: _OwnedPodSpec = msgspec.field(default_factory=_OwnedPodSpec)
    status: _OwnedPodStatus = msgspec.field(default_factory=_OwnedPodStatus)

    @property
    def is_alive(self) -> bool:
        return self.metadata.deletion_timestamp is None and self.status.phase not in _ENDED


@dataclass(frozen=True, slots=True)
class OwnerOfPods:
    """An object of any kind, and the pods below it."""

    target: Target
    """With its kind as the API has it."""
    kind: ServedKind
    body: Mapping[str, Any]
    pods: tuple[OwnedPod, ...]
    unread: tuple[str, ...] = ()
    """Kinds that may not be listed, below which there may be more pods."""


async def read_object(client: Client, written: Target) -> dict[str, Any]:
    """Return an object as the API has it. Raises ``TargetNotFoundError``."""
    kinds = await read_served_kinds(client)
    return await _get(client, kinds, _find_kind(kinds, written.kind), written)


async def find_owner(client: Client, written: Target) -> OwnerOfPods:
    """Return the object that was written, with its pods. Raises ``TargetNotFoundError``."""
    kinds = await read_served_kinds(client)
    kind = _find_kind(kinds, written.kind)
    if not kind.is_namespaced:
        raise TargetNotFoundError(f"{kind.title} are in no namespace, and own no pods")
    body = await _get(client, kinds, kind, written)
    uid = str(to_map(body.get("metadata")).get("uid") or "")
    owners = Owners(kinds)
    pods = await list_all(client, path_in(PODS.path, written.namespace), OwnedPod)
    await owners.read(client, written.namespace, [pod.metadata for pod in pods])
    owned = tuple(pod for pod in pods if owners.is_below(pod.metadata, uid))
    target = Target(kind.kind, written.namespace, written.name)
    return OwnerOfPods(target, kind, body, owned, tuple(sorted(owners.unread)))


def _find_kind(kinds: Sequence[ServedKind], written: str) -> ServedKind:
    try:
        return find_served(kinds, written)
    except UnknownKindError as error:
        raise TargetNotFoundError(str(error)) from error


async def _get(
    client: Client, kinds: Sequence[ServedKind], kind: ServedKind, written: Target
) -> dict[str, Any]:
    path = f"{kind.path(written.namespace)}/{quote(written.name, safe='')}"
    try:
        return await client.get(path, dict[str, Any])
    except Forbidden as error:
        raise KubeError(
            f"you may not get {kind.title} in namespace {written.namespace}: ask about a pod of "
            f"{written.name} (pod/NAME), or about its PodGroup"
        ) from error
    except Garbled as error:
        raise TargetNotFoundError(f"{cut(written.name)} is no name of an object") from error
    except NotFound as error:
        namesakes = [f"{other.title}/{written.name}" for other in list_namesakes(kinds, kind)]
        also = f"; {kind.title} was looked up, there is also {' and '.join(namesakes)}"
        names = await _list_names(client, kind, written.namespace)
        raise TargetNotFoundError(
            f"there is no {kind.kind} {written.name} in namespace {written.namespace}"
            f"{suggest(written.name, names)}{also if namesakes else ''}"
        ) from error


async def _list_names(client: Client, kind: ServedKind, namespace: str) -> set[str]:
    try:
        page = await client.get(kind.path(namespace), ObjectList[Identified], _SOME)
    except ApiError:
        return set()
    return {item.metadata.name for item in page.items or ()}


@dataclass(slots=True)
class Owners:
    """Who controls what, by uid, as far as it was read."""

    kinds: Sequence[ServedKind]
    unread: set[str] = field(default_factory=set)
    _controllers: dict[str, WireOwnerReference | None] = field(default_factory=dict)

    async def read(self, client: Client, namespace: str, pods: Iterable[WireObjectMeta]) -> None:
        """Read all kinds of which something controls the pods, or what controls them."""
        served = {(kind.group, kind.kind): kind for kind in self.kinds if kind.is_namespaced}
        self._note(pods)
        listed: set[str] = set()
        for _ in range(_MOST_STEPS):
            unknown = {
                (group_of(owner), owner.kind)
                for owner in self._controllers.values()
                if owner is not None and owner.uid not in self._controllers
            }
            wanted = [served[key] for key in sorted(unknown & served.keys())]
            wanted = [kind for kind in wanted if kind.title not in listed]
            if not wanted:
                return
            for kind in wanted:
                listed.add(kind.title)
                try:
                    page = await client.get_as(_METADATA, kind.path(namespace), ObjectList[Owned])
                except ApiError:
                    self.unread.add(kind.title)
                    continue
                self._note(item.metadata for item in page.items or ())

    def _note(self, objects: Iterable[WireObjectMeta]) -> None:
        for meta in objects:
            self._controllers[meta.uid] = controller_of(meta)

    def list_above(self, meta: WireObjectMeta) -> list[WireOwnerReference]:
        """Return what controls an object, from below; ends where something is not known."""
        above: list[WireOwnerReference] = []
        owner = controller_of(meta)
        while owner is not None and len(above) < _MOST_STEPS:
            above.append(owner)
            owner = self._controllers.get(owner.uid)
        return above

    def is_below(self, meta: WireObjectMeta, uid: str) -> bool:
        return any(owner.uid == uid for owner in self.list_above(meta))


class Owned(msgspec.Struct):
    """Metadata of an object that is controlled by another."""

    metadata: WireObjectMeta


def controller_of(meta: WireObjectMeta) -> WireOwnerReference | None:
    return next((owner for owner in meta.owner_references or () if owner.controller), None)


def group_of(owner: WireOwnerReference) -> str:
    group, slash, _ = owner.api_version.partition("/")
    return group if slash else ""


def describe_without_pods(owner: OwnerOfPods, now: float) -> JobState:
    """Say why an object has no pods that live: it is suspended, over, or has made none."""
    target, body = owner.target, owner.body
    title, where = f"{target.kind} {target.key}", f"-n {target.namespace} {target.name}"
    over = next(
        (
            seen
            for seen in map(to_map, to_list(to_map(body.get("status")).get("conditions")))
            if seen.get("type") in _OVER and seen.get("status") == "True"
        ),
        None,
    )
    if over is not None:
        why = ": ".join(filter(None, (str(over.get(key) or "") for key in ("reason", "message"))))
        text = f"{title} is over, its condition {over.get('type')} is true: {cut(why)}"
        return JobState(PlacementState.ENDED, WireObjectMeta(), (f"{text.removesuffix('.')}.",))
    if (field_name := _find_suspended(body)) is not None:
        text = f"{title} is suspended ({field_name}), so it has no pods."
        resume = f"To resume it, set {field_name} to false, unless a queue does: see {where}."
        return JobState(
            PlacementState.WAITING, WireObjectMeta(), (text,), (resume,), is_suspended=True
        )
    created = _read_created(body)
    age = f"{format_age(now - created)} old and" if created else "there and"
    note = f"{title} is {age} has no pods that live: its controller makes them."
    advice = (
        f"If that lasts, kubectl describe {owner.kind.title} {where} says why; it may also be that "
        "its controller does not run, or that what it has made is suspended."
    )
    return JobState(PlacementState.WAITING, WireObjectMeta(), (note,), (advice,))


def _find_suspended(body: Mapping[str, Any]) -> str | None:
    """Return the field that suspends an object; None if none does."""
    spec = to_map(body.get("spec"))
    if spec.get("suspend") is True:
        return "spec.suspend"
    return (
        "spec.runPolicy.suspend" if to_map(spec.get("runPolicy")).get("suspend") is True else None
    )


def _read_created(body: Mapping[str, Any]) -> float:
    text = to_map(body.get("metadata")).get("creationTimestamp")
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0
