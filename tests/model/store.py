"""The objects of the model, their revisions, and the log that watches are served from.

It does not know requests. Objects are kept as JSON, so that none is changed by accident.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from koord.domains import registry

PODS: Final = "pods"
NODES: Final = "nodes"
POD_GROUPS: Final = "podgroups"
QUOTAS: Final = "elasticquotas"
RESERVATIONS: Final = "reservations"
MIGRATION_JOBS: Final = "podmigrationjobs"
REPLICA_SETS: Final = "replicasets"
BUDGETS: Final = "poddisruptionbudgets"
API_VERSIONS: Final = {
    PODS: ("v1", "Pod"),
    NODES: ("v1", "Node"),
    POD_GROUPS: ("scheduling.sigs.k8s.io/v1alpha1", "PodGroup"),
    QUOTAS: ("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota"),
    RESERVATIONS: ("scheduling.koordinator.sh/v1alpha1", "Reservation"),
    BUDGETS: ("policy/v1", "PodDisruptionBudget"),
    MIGRATION_JOBS: ("scheduling.koordinator.sh/v1alpha1", "PodMigrationJob"),
    REPLICA_SETS: ("apps/v1", "ReplicaSet"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
    # No object of the other kinds ever exists.
    **{
        kind.name: (kind.api_version, "Absent")
        for kind in registry.KINDS
        if kind.name not in {PODS, NODES, POD_GROUPS, QUOTAS, RESERVATIONS, MIGRATION_JOBS}
    },
}
KINDS: Final = tuple(API_VERSIONS)

Obj = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

encode = msgspec.json.encode
decode = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a watch."""

    revision: int
    kind: str
    type: str
    obj: Obj = field(repr=False, compare=False)
    line: bytes


@dataclass(slots=True)
class Store:
    """All objects, by kind and key. ``listeners`` are called with every event."""

    revision: int = 1
    log: list[Event] = field(default_factory=list)
    forgotten: int = 0
    """Watches cannot start before this revision."""
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    _objects: dict[str, dict[Key, Obj]] = field(default_factory=lambda: {k: {} for k in KINDS})
    _stored: dict[tuple[str, Key], bytes] = field(default_factory=dict)
    _uids: int = 0

    def get(self, kind: str, key: Key) -> Obj | None:
        """Return an object; it must not be changed."""
        return self._objects[kind].get(key)

    def all(self, kind: str) -> Iterator[Obj]:
        """Yield the objects of a kind, sorted by key; they must not be changed."""
        objects = self._objects[kind]
        return (objects[key] for key in sorted(objects))

    def copy(self, kind: str, key: Key) -> Obj:
        """Return an object to change and hand to :meth:`replace`."""
        return decode(self._stored[kind, key])

    def insert(self, kind: str, key: Key, obj: Obj) -> None:
        """Store a new object under a new uid."""
        self._uids += 1
        obj["metadata"]["uid"] = f"uid-{self._uids}-{key[1]}"
        self._write(kind, key, obj, "ADDED")

    def replace(self, kind: str, key: Key, obj: Obj) -> None:
        """Store another state of an object; nothing happens if it is the same."""
        if obj != self._objects[kind][key]:
            self._write(kind, key, obj, "MODIFIED")

    def remove(self, kind: str, key: Key) -> None:
        """Remove an object."""
        obj = self.copy(kind, key)
        self._write(kind, key, obj, "DELETED")
        del self._objects[kind][key], self._stored[kind, key]

    def page(self, kind: str, namespace: str = "") -> bytes:
        """Return the list of a kind, in one namespace or in all."""
        version, name = API_VERSIONS[kind]
        keys = sorted(key for key in self._objects[kind] if namespace in {"", key[0]})
        items = b",".join(self._stored[kind, key] for key in keys)
        return (
            b'{"apiVersion":"%b","kind":"%bList","metadata":{"resourceVersion":"%d"},"items":[%b]}'
            % (
                version.encode(),
                name.encode(),
                self.revision,
                items,
            )
        )

    def since(self, kind: str, revision: int) -> list[Event] | None:
        """Return the events of a kind after a revision; None if the log was compacted."""
        if revision < self.forgotten:
            return None
        return [one for one in self.log if one.kind == kind and one.revision > revision]

    def forget(self) -> None:
        """Compact the log: older watches must list again."""
        self.forgotten = self.revision
        self.log.clear()

    def _write(self, kind: str, key: Key, obj: Obj, event: str) -> None:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        stored = encode(obj)
        self._objects[kind][key] = obj
        self._stored[kind, key] = stored
        line = b'{"type":"%b","object":%b}\n' % (event.encode(), stored)
        made = Event(self.revision, kind, event, obj, line)
        self.log.append(made)
        for listener in self.listeners:
            listener(made)
