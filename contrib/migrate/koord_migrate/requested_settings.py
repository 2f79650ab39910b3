"""What the keys of other schedulers ask for, independent of whose keys they are."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.api.json_text import load_json
from koord.api.keys import gang, operators, quota
from koord.api.networktopology import NODE_LAYER
from koord.api.workloads import Document
from koord_migrate.queue_settings import read_wait
from koord_migrate.table import (
    FOREIGN_GATES,
    NONE,
    PREFIXES,
    SCHEDULERS,
    Action,
    KeyTranslation,
    Peer,
)

Say = Callable[[str, str], None]
"""Takes a key that could not be translated, and what to do about it."""

_HOSTNAME: Final = "kubernetes.io/hostname"
_NO_QUOTA: Final = ("", "default", "root")
"""Queues of others that limit nothing; our default quota needs no label."""


def layer_of(node_label: str) -> str:
    """Name a layer after its node label: ``example.com/topology-rack`` is TopologyRackLayer."""
    if node_label == _HOSTNAME:
        return NODE_LAYER
    words = re.findall(r"[A-Za-z0-9]+", node_label.rpartition("/")[2])
    return "".join(word[:1].upper() + word[1:] for word in words)[:58] + "Layer"


@dataclass
class RequestedSettings:
    """What one object, or one pod template, asks for."""

    gang: str = ""
    minimum: int | None = None
    quota: str = ""
    priority: str = ""
    timeout: int | None = None
    index: str = ""
    sub_group: str = ""
    sub_groups: list[Document] = field(default_factory=list)
    min_sub_groups: int | None = None
    min_resources: Document = field(default_factory=dict)
    gather: list[Document] = field(default_factory=list)
    slice_layer: str = ""
    slice_size: int | None = None
    slices: list[Document] = field(default_factory=list)
    """Slices of several layers: entries of a topology constraint."""
    preemptible: str = ""
    gpu_fraction: float | None = None
    gpu_count: int = 1
    wait: str = ""
    """After how long nobody may overtake it."""
    peers: set[Peer] = field(default_factory=set)
    """Whose keys there were."""

    @property
    def constraint(self) -> list[Document]:
        """The entries of a topology constraint."""
        slices = list(self.slices)
        if self.slice_layer and self.slice_size:
            slices.append(_slice(self.slice_layer, self.slice_size))
        entries = {entry["layer"]: entry for entry in self.gather}
        for slice_ in slices:
            entries[slice_["layer"]] = slice_ | entries.get(slice_["layer"], {})
        return list(entries.values())

    @property
    def pod_part(self) -> str:
        """List what only pods can say; empty if nothing."""
        values = {"queue": self.quota, "priority": self.priority, "preemptible": self.preemptible}
        return ", ".join(f"{name} {value}" for name, value in values.items() if value)

    def fill(self, other: "RequestedSettings") -> None:
        """Take from other settings what these leave open."""
        for name, value in vars(other).items():
            if name == "peers":
                self.peers |= value
            elif getattr(self, name) == getattr(RequestedSettings(), name):
                setattr(self, name, value)


def _number(value: Any) -> int:
    return int(str(value))


def _gather(strategy: str) -> Callable[[RequestedSettings, Any], None]:
    def add(settings: RequestedSettings, value: Any) -> None:
        settings.gather.append({"layer": layer_of(str(value)), "strategy": strategy})

    return add


def _set(
    name: str, convert: Callable[[Any], Any] = str
) -> Callable[[RequestedSettings, Any], None]:
    return lambda settings, value: setattr(settings, name, convert(value))


def _slice(layer: str, size: int) -> Document:
    return {"layer": layer, "strategy": "PreferGather", "podCountMultiple": size}


def _add_slices(settings: RequestedSettings, value: Any) -> None:
    try:
        levels = load_json(str(value))
        settings.slices = [
            _slice(layer_of(level["topology"]), _number(level["size"])) for level in levels
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError from error


def _set_preemptibility(settings: RequestedSettings, value: Any) -> None:
    values = {"non-preemptible": "false", "preemptible": "true"}
    if str(value) not in values:
        raise ValueError
    settings.preemptible = values[str(value)]


def _set_quota(settings: RequestedSettings, value: Any) -> None:
    settings.quota = "" if str(value) in _NO_QUOTA else str(value)


SETTERS: Final[Mapping[Action, Callable[[RequestedSettings, Any], None]]] = {
    Action.GANG: _set("gang"),
    Action.MINIMUM: _set("minimum", _number),
    Action.QUOTA: _set_quota,
    Action.PRIORITY: _set("priority"),
    Action.TIMEOUT: _set("timeout", _number),
    Action.SUB_GROUP: _set("sub_group"),
    Action.REQUIRED: _gather("MustGather"),
    Action.PREFERRED: _gather("PreferGather"),
    Action.SLICE_LAYER: _set("slice_layer", lambda value: layer_of(str(value))),
    Action.SLICE_SIZE: _set("slice_size", _number),
    Action.INDEX: _set("index", lambda value: str(_number(value))),
    Action.PREEMPTIBLE: _set("preemptible"),
    Action.PREEMPTIBILITY: _set_preemptibility,
    Action.SLICES: _add_slices,
    Action.MIN_RESOURCES: _set("min_resources", lambda value: value),
    Action.MIN_SUB_GROUPS: _set("min_sub_groups", _number),
    Action.GPU_FRACTION: _set("gpu_fraction", float),
    Action.GPU_COUNT: _set("gpu_count", _number),
    Action.WAIT: _set("wait", read_wait),
}


CHECK: Final = "check that you can do without it"
UNKNOWN: Final = f"unknown: {CHECK}, or set it by hand"


def advice_of(row: KeyTranslation) -> str:
    """Say what to do about a key that has no equivalent."""
    if row.becomes == NONE:
        return f"{row.note or 'nothing here does this'}; {CHECK}"
    return f"use {row.becomes}" + (f": {row.note}" if row.note else "")


def take(settings: RequestedSettings, row: KeyTranslation, value: Any, say: Say) -> None:
    """Note one value, or say why it is lost."""
    settings.peers.add(row.peer)
    if row.action is Action.REPORT:
        say(row.key, advice_of(row))
    elif row.action in SETTERS:
        try:
            SETTERS[row.action](settings, value)
        except ValueError:
            say(row.key, f"{value!r} cannot be read: correct it, and migrate again")


def read_keys(
    metadata: Document,
    rows: Mapping[str, KeyTranslation],
    say: Say,
    prefixes: Mapping[str, Peer] = PREFIXES,
) -> RequestedSettings:
    """Return what keys with a row or a prefix ask for, and remove all that are not kept."""
    settings = RequestedSettings()
    for name in ("labels", "annotations"):
        keys = metadata.get(name)
        if not isinstance(keys, dict):
            continue
        for key in list(keys):
            peer = next(
                (peer for name, peer in prefixes.items() if str(key).startswith(name)), None
            )
            if key in rows and rows[key].action is Action.KEEP:
                continue
            if key in rows:
                take(settings, rows[key], keys.pop(key), say)
            elif peer is not None:
                settings.peers.add(peer)
                say(key, f"unknown, its value was {keys.pop(key)!r}: {CHECK}, or set it by hand")
        if not keys:
            del metadata[name]
    return settings


def schedulers_of(templates: list[Document]) -> set[Peer]:
    """Return whose schedulers the templates name."""
    names = (str((template.get("spec") or {}).get("schedulerName")) for template in templates)
    return {SCHEDULERS[name] for name in names if name in SCHEDULERS}


def add_to_template(template: Document, settings: RequestedSettings) -> None:
    """Let pods opt in, and give them the labels and annotations of the settings."""
    pod = template.setdefault("spec", {})
    gates = [gate for gate in pod.get("schedulingGates") or () if gate["name"] not in FOREIGN_GATES]
    if all(gate["name"] != operators.PLACEMENT_GATE for gate in gates):
        gates.append({"name": operators.PLACEMENT_GATE})
    pod["schedulingGates"] = gates
    if needs_kube_scheduler(pod):
        pod.pop("schedulerName", None)
    else:
        pod["schedulerName"] = operators.SCHEDULER_NAME
    if settings.priority:
        pod.setdefault("priorityClassName", settings.priority)
    labels = {
        gang.POD_GROUP: settings.gang,
        quota.NAME: settings.quota,
        quota.PREEMPTIBLE: settings.preemptible if settings.preemptible == "false" else "",
    }
    annotations = {
        operators.SUB_GROUP: settings.sub_group,
        gang.NETWORK_TOPOLOGY_INDEX: settings.index,
    }
    metadata = template.setdefault("metadata", {})
    for name, keys in (("labels", labels), ("annotations", annotations)):
        wanted = {key: value for key, value in keys.items() if value}
        if wanted:
            metadata[name] = {**(metadata.get(name) or {}), **wanted}


def needs_kube_scheduler(pod: Document) -> bool:
    """Whether only kube-scheduler can bind the pod; the gate alone is right then."""
    volumes = pod.get("volumes") or ()
    late = {"persistentVolumeClaim", "ephemeral"}
    return bool(pod.get("resourceClaims")) or any(late & volume.keys() for volume in volumes)


def make_pod_group(name: str, namespace: str, settings: RequestedSettings) -> Document:
    metadata: Document = {"name": name} | ({"namespace": namespace} if namespace else {})
    annotations = {}
    if settings.constraint:
        annotations[gang.NETWORK_TOPOLOGY_SPEC] = json.dumps(
            {"gatherStrategy": settings.constraint}
        )
    if settings.sub_groups:
        least = {"minSubGroups": settings.min_sub_groups} if settings.min_sub_groups else {}
        annotations[operators.SUB_GROUPS] = json.dumps(least | {"groups": settings.sub_groups})
    if annotations:
        metadata["annotations"] = annotations
    spec: Document = {"minMember": max(settings.minimum or 1, 1)}
    if settings.min_resources:
        spec["minResources"] = settings.min_resources
    if settings.timeout:
        spec["scheduleTimeoutSeconds"] = settings.timeout
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def containers_of(template: Document) -> Iterator[Document]:
    yield from (template.get("spec") or {}).get("containers") or ()
