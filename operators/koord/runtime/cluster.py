"""Keeps a ``ClusterState`` current: runs one reflector per kind and applies what they deliver.

Which kinds there are and how each is applied stands in ``koord.domains``.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar, cast

from koord.core.engine.state import ClusterState
from koord.core.model.pods import Handling, Pod
from koord.domains.placement import PODS
from koord.isolation import Isolation
from koord.kube.client import Client
from koord.kube.kind import AnyKind, Kind, Translator, TranslatorOptions
from koord.kube.reflector import Absence, Reflector, Source, WatchTimes
from koord.kube.store import Change, Deleted, HasMeta
from koord.runtime.snapshot import ClusterSnapshot

log = logging.getLogger(__name__)

W = TypeVar("W", bound=HasMeta)
T = TypeVar("T")
R = TypeVar("R", bound=Translator[Any, Any])


class ClusterReader:
    """Runs the reflectors of ``kinds`` and applies what they deliver to ``state``.

    ``make_state`` returns an empty one.

    ``listeners`` are called after every batch of changes, in the same turn of the event loop.
    """

    def __init__(
        self,
        client: Client,
        kinds: Iterable[AnyKind],
        make_state: Callable[[], ClusterState],
        options: TranslatorOptions,
        times: WatchTimes = WatchTimes(),  # noqa: B008 - a frozen value
    ) -> None:
        self.state = make_state()
        self._make_state = make_state
        self.listeners: list[Callable[[], None]] = []
        self.companions: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What runs as long as the reflectors, whether this process leads or not."""
        self.rejections: Counter[str] = Counter()
        """Reason -> pods of ours that kubelets were seen to reject since the start."""
        self.polled: dict[AnyKind, Callable[[], Iterable[Any]]] = {}
        """What the state knows beside a kind, and no reflector does: snapshots have it, too."""
        self._isolated = Isolation("changes")
        self._absences: dict[AnyKind, Absence] = {}
        self._client = client
        self._options = options
        self._times = times
        self._translators: dict[AnyKind, Translator[Any, Any]] = {}
        self._kinds = list(kinds)
        self._tasks: asyncio.TaskGroup | None = None
        self.reflectors: dict[str, Reflector[Any, Any]] = {
            kind.name: self._make_reflector(kind) for kind in self._kinds
        }

    def translator(self, kind: Kind[W, T, R]) -> R:
        """Return the translator of a kind, which remembers what writers of that kind ask for."""
        if kind not in self._translators:
            self._translators[kind] = kind.make_translator(self._options)
        return cast("R", self._translators[kind])

    def take_snapshot(self) -> ClusterSnapshot:
        """Return what is observed now, from which other states can be made."""
        values = {kind: self.reflectors[kind.name].values() for kind in self._kinds}
        for kind, read in self.polled.items():
            values[kind] = (*values.get(kind, ()), *read())
        return ClusterSnapshot(
            self._make_state,
            values,
            dict(self._absences),
            tuple(self.state.nominations),
            self.state.now,
        )

    def unsynced(self) -> list[str]:
        return [
            kind for kind, reflector in self.reflectors.items() if not reflector.synced.is_set()
        ]

    def is_synced(self) -> bool:
        return not self.unsynced()

    async def wait_synced(self) -> None:
        for reflector in [*self.reflectors.values()]:
            await reflector.synced.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            for name, reflector in self.reflectors.items():
                self._tasks.create_task(reflector.run(), name=f"reflect {name}")
            for run in self.companions:
                self._tasks.create_task(run())

    def add(self, kind: AnyKind) -> None:
        """Read one more kind from now on, once the others are read."""
        reflector = self.reflectors[kind.name] = self._make_reflector(kind)
        self._kinds.append(kind)
        if self._tasks is not None:
            self._tasks.create_task(reflector.run(), name=f"reflect {kind.name}")

    def describe(self) -> dict[str, object]:
        return {kind: _describe(reflector) for kind, reflector in self.reflectors.items()}

    def _make_reflector(self, kind: Kind[W, T, Any]) -> Reflector[W, T]:
        def reject(key: str, problem: str) -> None:
            log.warning(
                "an object cannot be decoded; its last known version is kept",
                extra={"kind": kind.name, "object": key, "problem": problem},
            )

        def note_absence(absence: Absence) -> None:
            if kind.note_absence is not None and absence is not self._absences.get(kind):
                self._absences[kind] = absence
                self.apply_absence(kind, absence)
                if absence is Absence.UNPROVEN:
                    log.error(
                        "the API server does not serve a kind any more; its last known objects "
                        "stay in force for a while, and nothing new starts under them",
                        extra={"kind": kind.name, "seconds": kind.kept_seconds},
                    )
                elif absence is Absence.PROVEN:
                    level = logging.ERROR if kind.is_required else logging.INFO
                    log.log(level, "there are no objects of a kind", extra={"kind": kind.name})

        source = self.source_of(kind, reject)
        source = replace(source, note_absence=note_absence)
        return Reflector(self._client, source, partial(self.apply, kind), times=self._times)

    def source_of(self, kind: Kind[W, T, Any], reject: Callable[[str, str], None]) -> Source[W, T]:
        """Return what is reflected of a kind."""
        return kind.source(self.translator(kind), reject)

    def apply_absence(self, kind: AnyKind, absence: Absence) -> None:
        """Apply that a kind is served or not."""
        if kind.note_absence is not None:
            kind.note_absence(self.state, absence)

    def apply(self, kind: Kind[W, T, Any], changes: list[Change[T]]) -> None:
        """Apply observed changes; an object that cannot be applied counts as not there."""
        for change in changes:
            if isinstance(change, Deleted):
                self._isolated.call(kind.name, kind.remove, self.state, change.value)
                continue
            with self._isolated.of(kind.name):
                if kind is PODS:
                    self._count_rejection(cast("Pod", change.value))
                kind.upsert(self.state, change.value)
                continue
            # Half of it may have been applied.
            self._isolated.call(kind.name, kind.remove, self.state, change.value)
        self._notify()

    def _count_rejection(self, pod: Pod) -> None:
        if pod.rejection and (pod.recorded is not None or pod.handling is not Handling.NOT_OURS):
            before = self.state.observed(pod.uid)
            # Pods that were rejected before the start were counted by another process.
            self.rejections[pod.rejection] += before is not None and not before.rejection

    def _notify(self) -> None:
        if not self.state.has_readers:
            self.state.publish()
        for listener in self.listeners:
            listener()


def _describe(reflector: Reflector[Any, Any]) -> dict[str, object]:
    stats = asdict(reflector.stats)
    del stats["last_contact"]  # monotonic: meaningless outside this process
    return {
        "synced": reflector.synced.is_set(),
        "path": reflector.path,
        "objects": len(reflector),
        "silence_seconds": round(reflector.stats.silence, 1),
        **stats,
    }
