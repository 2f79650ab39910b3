"""Keeps a local cache of one kind of object by list and watch.

A watch delivers every change only while it is unbroken and recent. Otherwise the kind is listed
again and compared with the cache, so that objects deleted meanwhile are reported as deleted. A
cache that is known to be stale is not ``synced``.

A connection may stay open although nothing will ever arrive on it, after a failure of the network
or in a proxy. Servers are silent about quiet kinds for a minute. So each watch is asked for a short
time only, see ``WatchTimes``: its end is the sign of life, and the next one continues from the
bookmark that the server sends just before. Where even that is missing for long, the kind is listed.

Changes are delivered in order, in batches, from one task; changes that arrive together are one
batch. The batch that completes a cache is delivered even if it is empty, as a signal.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from koord.kube.client import Client
from koord.kube.decode import BOOKMARK, DELETED, Decoder, Line, Poison
from koord.kube.errors import ApiError, KubeError, NotFound, error_of
from koord.kube.retry import Backoff, is_transient
from koord.kube.store import Added, Change, Deleted, HasMeta, Key, Modified, Store, key_of
from koord.kube.wire import WireStatus

PAGE_SIZE: Final = 500
STALE_SECONDS: Final = 120.0
ABSENT_SECONDS: Final = 5.0, 10.0
"""How long to wait before looking again for a kind that is not served."""
RELIST_SECONDS: Final = 4 * 3600.0
"""How often to list although the watch is healthy; differences found then are bugs of ours."""
_TICK: Final = 0.05
MAX_LINE: Final = 64 << 20
"""Bytes of one watch event; etcd limits objects to a fraction of this."""

W = TypeVar("W", bound=HasMeta)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """How long watches last, in seconds."""

    most: float = 15.0

    def choose(self) -> int:
        """Return for how long to ask for a watch; random, to spread the load."""
        return random.randint(math.ceil(0.8 * self.most), math.ceil(self.most))  # noqa: S311

    @property
    def silence(self) -> float:
        """After this time without a byte a stream is dead: it should have ended."""
        return self.most * 4 / 3

    @property
    def healthy(self) -> float:
        """A watch that has lasted this long is continued at once, whatever it delivered."""
        return self.most / 2


class Absence(Enum):
    """Whether a kind is served, and if not, what that means for its objects."""

    NONE = auto()
    """It is served."""
    UNPROVEN = auto()
    """It has not been served for a short time: the objects last seen are kept."""
    PROVEN = auto()
    """It has not been served for long: there are no objects."""


@dataclass(frozen=True, slots=True)
class Source(Generic[W, T]):
    """A collection to reflect.

    ``translate`` raises ValueError for an invalid object, whose ``namespace/name`` and problem go
    to ``reject``. ``forget`` gets the values of deleted objects. ``absent_on`` are the errors that
    mean that there are no objects of this kind, once they have been answered for ``kept_seconds``;
    before that a cache that was complete stays as it is. ``note_absence`` is called before changes
    that follow from it are delivered.
    """

    path: str
    wire: type[W]
    translate: Callable[[W], T]
    forget: Callable[[T], None] = lambda _value: None
    reject: Callable[[str, str], None] = lambda _key, _problem: None
    params: Mapping[str, str] = field(default_factory=dict)
    other_paths: tuple[str, ...] = ()
    """Other versions of the collection: each list takes the first that is served, the watch too."""
    is_metadata_only: bool = False
    """Whether nothing is read of the objects but their metadata."""
    absent_on: tuple[type[KubeError], ...] = ()
    kept_seconds: float = 0.0
    may_lack_at_start: bool = False
    """Whether the first answer that there are none is believed at once."""
    note_absence: Callable[[Absence], None] = lambda _absence: None


@dataclass(slots=True)
class ReflectorStats:
    """Counters since the start; ``last_contact`` is on the monotonic clock."""

    added: int = 0
    modified: int = 0
    deleted: int = 0
    inferred_deletes: int = 0
    bookmarks: int = 0
    poison: int = 0
    lists: int = 0
    watches: int = 0
    errors: int = 0
    decode_seconds: float = 0.0
    last_contact: float = 0.0
    last_error: str = ""

    @property
    def silence(self) -> float:
        return time.monotonic() - self.last_contact


class Reflector(Generic[W, T]):
    """Caches ``source`` and delivers every change. Run ``run`` in a task group."""

    def __init__(
        self,
        client: Client,
        source: Source[W, T],
        deliver: Callable[[list[Change[T]]], None],
        *,
        times: WatchTimes = WatchTimes(),
        backoff: Backoff = Backoff(),  # noqa: B008 - a frozen value
    ) -> None:
        self.synced = asyncio.Event()
        """Set while the cache is complete and current."""
        self.stats = ReflectorStats()
        self.path = source.path
        """The collection that was listed last, of those that may be served."""
        self.is_absent = False
        """Whether the last answer was that there is no such collection."""
        self._client = client
        self._source = source
        self._deliver = deliver
        self._times = times
        self._backoff = backoff
        self._relist_at = float("inf")
        self._listed_from = float("-inf")
        """When the last complete list began."""
        self._absent_since = float("inf")
        self._wanted_at = float("-inf")
        """A list is wanted that began after this."""
        self._following: asyncio.Timeout | None = None
        self._decoder = Decoder(source.wire)
        self._store = Store(source.translate, self._reject)
        self._revision = ""
        """Where the watch continues; empty if a list is needed."""

    def __len__(self) -> int:
        return len(self._store)

    @property
    def version(self) -> str:
        """``v1`` or ``group/version`` of the objects."""
        return self.path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]

    def values(self) -> tuple[T, ...]:
        """Return all objects as they were seen last."""
        return self._store.values()

    def get(self, namespace: str, name: str) -> T | None:
        return self._store.get((namespace, name))

    async def run(self) -> None:
        """List and watch until cancelled; errors are retried."""
        attempt = 0
        self.stats.last_contact = time.monotonic()
        while True:
            began, revision = time.monotonic(), self._revision
            error = await self._follow()
            # The server closes a watch that falls behind, most of all in a burst. If it delivered
            # anything, continue immediately: waiting would make us fall behind further.
            has_progressed = error is None and revision not in {"", self._revision}
            is_healthy = has_progressed or time.monotonic() - began >= self._times.healthy
            attempt = 0 if is_healthy else attempt + 1
            if self.is_absent:
                await self._pause(random.uniform(*ABSENT_SECONDS))  # noqa: S311 - spreads load
            elif error is not None or not is_healthy:
                await self._pause(self._backoff.delay(max(0, attempt - 1), error))

    async def relist(self) -> None:
        """List again, and translate all objects again; the cache is newer than this call then.

        The list has no ``resourceVersion``, so the server answers with its newest one.
        """
        self._wanted_at = called_at = time.monotonic()
        self._store.doubt()
        if self._following is not None and not self._following.expired():
            self._following.reschedule(asyncio.get_running_loop().time())
        while self._listed_from < called_at or not self.synced.is_set():  # noqa: ASYNC110 - rare
            await asyncio.sleep(_TICK)

    async def _pause(self, seconds: float) -> None:
        """Sleep. Nothing arrives meanwhile, so a cache that will be stale then is stale now."""
        if time.monotonic() + seconds - self.stats.last_contact > STALE_SECONDS:
            self._invalidate()
        await asyncio.sleep(seconds)

    async def _follow(self) -> KubeError | None:
        """List if needed, then watch to the end of one stream; return the error, if any."""
        try:
            async with asyncio.timeout(None) as self._following:
                if not self._revision or self._listed_from < self._wanted_at:
                    await self._list()
                await self._watch()
        except TimeoutError:
            return None  # a list is wanted
        except KubeError as error:
            self.is_absent = isinstance(error, self._source.absent_on)
            if self.is_absent:
                self._clear()  # a valid state, not an error
                return error
            self.stats.errors += 1
            self.stats.last_error = str(error)
            if _needs_list(error):
                self._invalidate()
            return error
        finally:
            self._following = None
        now = time.monotonic()
        # A watch from a revision that the server does not have yet, as after a restored backup,
        # ends as it should and never says anything.
        if now >= self._relist_at or now - self.stats.last_contact > STALE_SECONDS:
            self._revision = ""
        return None

    def _clear(self) -> None:
        """Assume that no objects of this kind exist, until a list succeeds; not at once."""
        now = self.stats.last_contact = time.monotonic()
        self._absent_since = min(self._absent_since, now)
        was_listed = self._listed_from > float("-inf")
        is_believed = self._source.may_lack_at_start and not was_listed
        if is_believed or now - self._absent_since >= self._source.kept_seconds:
            self._source.note_absence(Absence.PROVEN)
            self._complete(self._store.retain(set()), "")
        elif was_listed:
            self._source.note_absence(Absence.UNPROVEN)
            self._complete([], "")
        else:
            self._invalidate()

    def _invalidate(self) -> None:
        self._revision = ""
        self.synced.clear()

    async def _list(self) -> None:
        """Read all pages and deliver the differences, with inferred deletions."""
        self.stats.lists += 1
        # Strictly before the first request: the list may lack what changes after it was sent.
        listing_from = time.monotonic()
        seen: set[Key] = set()
        params = {**self._source.params, "limit": str(PAGE_SIZE)}
        body = await self._list_first(params)
        while True:
            began = self.stats.last_contact = time.monotonic()
            meta, items = self._decoder.decode_page(body)
            seen.update(map(key_of, items))
            changes = [change for item in items for change in self._store.upsert(item)]
            self._flush(changes, began)
            if not meta.continue_:
                break
            params["continue"] = meta.continue_
            body = await self._fetch(params)
        self._relist_at = time.monotonic() + RELIST_SECONDS
        self._listed_from = listing_from
        self.is_absent = False
        self._absent_since = float("inf")
        self._source.note_absence(Absence.NONE)
        self._complete(self._store.retain(seen), meta.resource_version)

    async def _list_first(self, params: Mapping[str, str]) -> bytes:
        """Return the first page of the first version that is served."""
        *preferred, last = (self._source.path, *self._source.other_paths)
        for self.path in preferred:
            with suppress(NotFound):
                return await self._fetch(params)
        self.path = last
        return await self._fetch(params)

    async def _fetch(self, params: Mapping[str, str]) -> bytes:
        is_metadata_only = self._source.is_metadata_only
        return await self._client.list(self.path, params, is_metadata_only=is_metadata_only)

    def _complete(self, gone: list[Change[T]], revision: str) -> None:
        self._count(gone, time.monotonic())
        self._revision = revision
        # Before the delivery: whoever is woken by it finds the cache complete.
        self.synced.set()
        self._deliver(gone)

    async def _watch(self) -> None:
        self.stats.watches += 1
        params = {
            **self._source.params,
            "resourceVersion": self._revision,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._times.choose()),
        }
        silence = self._times.silence
        async with self._client.watch(
            self.path,
            params,
            silence=silence,
            is_metadata_only=self._source.is_metadata_only,
        ) as read:
            partial_line = b""
            while chunk := await read():
                began = self.stats.last_contact = time.monotonic()
                lines, _, partial_line = (partial_line + chunk).rpartition(b"\n")
                if len(partial_line) > MAX_LINE:
                    raise KubeError(f"a watch event of {self.path} exceeds {MAX_LINE} bytes")
                if lines:
                    self._take(self._decoder.decode_lines(lines), began)

    def _take(self, lines: list[Line[W]], began: float) -> None:
        changes: list[Change[T]] = []
        failure: WireStatus | None = None
        for kind, item in lines:
            if isinstance(item, WireStatus):
                failure = item
                break
            revision = _revision_of(item)
            if kind == BOOKMARK:
                self.stats.bookmarks += 1
            elif _is_old(revision, self._revision):
                continue  # repeated: the object may have changed or been deleted since
            elif kind == DELETED:
                changes += self._store.remove(item)
            else:
                changes += self._store.upsert(item)
            self._revision = revision or self._revision
        self._flush(changes, began)
        if failure is not None:
            self._invalidate()
            raise error_of(failure)

    def _flush(self, changes: list[Change[T]], began: float) -> None:
        self._count(changes, began)
        if changes:
            self._deliver(changes)

    def _count(self, changes: list[Change[T]], began: float) -> None:
        stats = self.stats
        stats.decode_seconds += time.monotonic() - began
        for change in changes:
            match change:
                case Added():
                    stats.added += 1
                case Modified():
                    stats.modified += 1
                case Deleted():
                    stats.deleted += 1
                    stats.inferred_deletes += change.is_inferred
                    self._source.forget(change.value)

    def _reject(self, key: str, problem: str) -> None:
        self.stats.poison += 1
        self._source.reject(key, problem)


def _needs_list(error: KubeError) -> bool:
    """Whether the watch cannot continue from the same revision.

    A revision from the future, as after a restored backup, gets a timeout response.
    """
    is_from_future = isinstance(error, ApiError) and "Too large resource version" in error.message
    return is_from_future or not is_transient(error)


def _is_old(revision: str, latest: str) -> bool:
    """Whether a revision is not newer than the known one. A watch delivers in this order."""
    return revision.isdecimal() and latest.isdecimal() and int(revision) <= int(latest)


def _revision_of(item: HasMeta | Poison) -> str:
    meta = item.identity if isinstance(item, Poison) else item.metadata
    return meta.resource_version
