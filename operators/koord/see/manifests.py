"""Reads manifests as what they would create: pods and PodGroups that do not exist yet.

What is not in a manifest is as the API server would set it: requests by limits, the value of a
PriorityClass, the namespace of the context. Policies and webhooks are not seen. Reads no file and
no server: what the server would add is a value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from koord.answers.edits import EditError, Submit
from koord.answers.envelope import AnswerGap, GapCause
from koord.api.lint_files import Files, Pods, collect
from koord.api.manifest_text import unfold
from koord.api.untyped import to_list, to_map
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.pods import Pod
from koord.domains.gang import POD_GROUPS
from koord.domains.registry import make_pod_translator
from koord.kube.decode import MALFORMED
from koord.kube.kind import TranslatorOptions
from koord.kube.wire import WireCustomResource, WirePod

PRIORITIES_UNKNOWN: Final = AnswerGap(
    "priorityclasses.scheduling.k8s.io",
    GapCause.NO_RIGHT,
    "what PriorityClasses are worth (each is taken for 0)",
)
DEFAULTS_UNSEEN: Final = AnswerGap(
    "defaults, policies and webhooks",
    GapCause.NOT_STORED,
    "what the API server would add to a manifest, or refuse",
)
MOST_PODS: Final = 10_000
_MOST_BYTES: Final = 64 << 20
"""Of all pods of one template together."""


@dataclass(frozen=True, slots=True)
class ServerDefaults:
    """What the API server would add."""

    namespace: str
    created: str
    priorities: Mapping[str, int] | None
    """PriorityClass -> its value, with that of all others under the empty name; None: unknown."""

    @property
    def gaps(self) -> tuple[AnswerGap, ...]:
        return () if self.priorities is not None else (PRIORITIES_UNKNOWN,)


def make_job(documents: list[Any], defaults: ServerDefaults, first: int = 0) -> Submit:
    """Return the pods and PodGroups of what was written; may raise ``EditError``.

    The documents are numbered from ``first`` on: names and uids of pods have the number.
    """
    files, groups = Files(), []
    objects = chain.from_iterable(map(unfold, documents))
    for at, document in enumerate(objects, start=first):
        if not isinstance(document, dict):
            continue
        collect(files, at, document, defaults.namespace)
        if document.get("kind") == "PodGroup":
            groups.append(_make_group(document, defaults, at))
    unknown = [pods for pods in files.pods if pods.count is None]
    if unknown:
        raise EditError(f"how many pods a {unknown[0].kind} has is not known here")
    if sum(pods.count or 0 for pods in files.pods) > MOST_PODS:
        raise EditError(f"these are more than {MOST_PODS} pods")
    pods = tuple(pod for each in files.pods for pod in _make_pods(each, defaults))
    if not pods:
        raise EditError("there are no pods in it: give a Pod, Job, StatefulSet or Deployment")
    return Submit(pods, tuple(groups))


def _make_group(document: dict[str, Any], defaults: ServerDefaults, at: int) -> ObservedPodGroup:
    meta = to_map(document.get("metadata"))
    written = {
        "metadata": _make_meta(meta, str(meta.get("name", "")), f"eta-group-{at}", defaults),
        "spec": document.get("spec") or {},
    }
    try:
        wire = msgspec.json.decode(msgspec.json.encode(written), type=WireCustomResource)
        return POD_GROUPS.make_translator(TranslatorOptions()).translate(wire)
    except MALFORMED as error:
        raise EditError(f"PodGroup {meta.get('name')} cannot be understood: {error}") from error


def _make_pods(pods: Pods, defaults: ServerDefaults) -> Iterator[Pod]:
    translator, base = make_pod_translator(), pods.meta.get("name") or pods.kind.lower()
    spec = {**pods.spec, "priority": _find_priority(pods.spec, defaults)}
    for part in ("containers", "initContainers"):
        spec[part] = [_complete(container) for container in to_list(spec.get(part))]
    if _measure([spec, pods.meta]) * (pods.count or 0) > _MOST_BYTES:
        raise EditError(f"pods of {pods.kind} {base} are together too large to be tried")
    for index in range(pods.count or 0):
        name = str(base) if pods.kind == "Pod" else f"{base}-{pods.at}-{index}"
        meta = {**pods.meta, "namespace": pods.namespace}
        written = {
            "metadata": _make_meta(meta, name, f"eta-{pods.at}-{index}", defaults),
            "spec": spec,
        }
        try:
            yield translator.translate(
                msgspec.json.decode(msgspec.json.encode(written), type=WirePod)
            )
        except MALFORMED as error:
            raise EditError(f"pods of {pods.kind} {base} cannot be understood: {error}") from error


def _measure(document: Any) -> int:
    """Return how many bytes a document has; what cannot be written is tried, and refused then."""
    try:
        return len(msgspec.json.encode(document))
    except (TypeError, ValueError, RecursionError):
        return 0


def _make_meta(
    meta: Mapping[str, Any], name: str, uid: str, defaults: ServerDefaults
) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": meta.get("namespace") or defaults.namespace,
        "uid": uid,
        "labels": meta.get("labels") or {},
        "annotations": meta.get("annotations") or {},
        "creationTimestamp": defaults.created,
    }


def _find_priority(spec: Mapping[str, Any], defaults: ServerDefaults) -> int:
    written = spec.get("priority")
    if isinstance(written, int):
        return written
    name, values = str(spec.get("priorityClassName") or ""), defaults.priorities
    if values is None:
        return 0
    if name not in values:
        raise EditError(f"there is no PriorityClass {name}")
    return values[name]


def _complete(container: Any) -> Any:
    """Set requests that are left out to the limits, as the server does."""
    if not isinstance(container, dict):
        return container
    given = to_map(container.get("resources"))
    requests = {**to_map(given.get("limits")), **to_map(given.get("requests"))}
    return {**container, "resources": {**given, "requests": requests}}
