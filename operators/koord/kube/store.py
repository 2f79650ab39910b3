"""The cache of one kind of object; updates return the resulting changes. No I/O."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from koord.isolation import Isolation
from koord.kube.decode import MALFORMED, Poison
from koord.kube.wire import Identity, WireObjectMeta


class HasMeta(Protocol):
    """Any wire object."""

    metadata: WireObjectMeta


_isolated: Final = Isolation("translation")

W = TypeVar("W", bound=HasMeta)
T = TypeVar("T")

Key: TypeAlias = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""


@dataclass(frozen=True, slots=True)
class Added(Generic[T]):
    """A new object."""

    value: T


@dataclass(frozen=True, slots=True)
class Modified(Generic[T]):
    """A new revision of a known object."""

    old: T
    value: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """A deleted object, as last known; inferred if only a list showed its absence."""

    value: T
    is_inferred: bool = False


Change: TypeAlias = Added[T] | Modified[T] | Deleted[T]


@dataclass(slots=True)
class _StoredObject(Generic[T]):
    uid: str
    revision: str
    value: T


class Store(Generic[W, T]):
    """The last valid value of every object.

    A known name with another uid is another object, and the old one is deleted. A malformed object
    is reported to ``on_poison`` (``namespace/name``, problem) and keeps its last value, if any.
    """

    def __init__(self, translate: Callable[[W], T], on_poison: Callable[[str, str], None]) -> None:
        self._translate = translate
        self._on_poison = on_poison
        self._entries: dict[Key, _StoredObject[T]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> tuple[T, ...]:
        return tuple(entry.value for entry in self._entries.values())

    def get(self, key: Key) -> T | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def doubt(self) -> None:
        """Translate every object again when it is seen next, also if it has not changed."""
        for entry in self._entries.values():
            entry.revision = ""

    def upsert(self, item: W | Poison) -> list[Change[T]]:
        """Store an object; a known revision changes nothing."""
        if isinstance(item, Poison):
            return self._reject(item.identity, item.problem)
        meta = item.metadata
        entry = self._entries.get((meta.namespace, meta.name))
        if entry is not None and entry.revision == meta.resource_version and entry.uid == meta.uid:
            return []
        try:
            value = self._translate(item)
        except Exception as error:  # noqa: BLE001 - counted and reported
            if not isinstance(error, MALFORMED):
                _isolated.note(f"{meta.namespace}/{meta.name}", error)
            return self._reject(meta, str(error) or repr(error))
        self._entries[meta.namespace, meta.name] = _StoredObject(
            meta.uid, meta.resource_version, value
        )
        if entry is None:
            return [Added(value)]
        if entry.uid != meta.uid:
            return [Deleted(entry.value), Added(value)]
        return [Modified(entry.value, value)]

    def remove(self, item: W | Poison) -> list[Change[T]]:
        """Remove a deleted object; a later object of the same name stays."""
        meta = item.identity if isinstance(item, Poison) else item.metadata
        key = (meta.namespace, meta.name)
        entry = self._entries.get(key)
        if entry is None or entry.uid != meta.uid:
            return []
        del self._entries[key]
        return [Deleted(entry.value)]

    def retain(self, seen: Collection[Key]) -> list[Change[T]]:
        gone = [key for key in self._entries if key not in seen]
        return [Deleted(self._entries.pop(key).value, is_inferred=True) for key in gone]

    def _reject(self, meta: WireObjectMeta | Identity, problem: str) -> list[Change[T]]:
        self._on_poison(f"{meta.namespace}/{meta.name}", problem)
        key = (meta.namespace, meta.name)
        entry = self._entries.get(key)
        if entry is None or meta.uid in {"", entry.uid}:
            return []
        # The known object is gone, and events of the malformed one will not remove it.
        return [Deleted(self._entries.pop(key).value)]


def key_of(item: HasMeta | Poison) -> Key:
    meta = item.identity if isinstance(item, Poison) else item.metadata
    return meta.namespace, meta.name
