"""Writes status: only changes, rate-limited, and never to a recreated object of the same name.

Annotations that Koordinator uses as status, and finalizers, belong to the same patch. Where the
status is a subresource, no request can change both: then there are two, of one field manager.

Patches of one object are coalesced until none arrives for a moment; the latest wins, and a status
that the object already has is not written. After a restart a patch is compared with the observed
status, until this writer has written one itself. A status that another client changed is written
again with the next patch; an empty observed status may be older than our last write, and is left.

Field managers of earlier releases lose their fields as soon as an answer of the server shows them:
all that is said is written under the present one first, so nothing of it is gone in between.

Namespaces take turns, and few writes of one are in flight: neither thousands of statuses of one
tenant nor large objects keep others waiting.
"""

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeAlias

from koord.core.model.text import format_time
from koord.isolation import Isolation, must_end
from koord.kube.client import Client, Media
from koord.kube.errors import Forbidden, Invalid, KubeError, NotFound
from koord.kube.objects import ObjectRef
from koord.kube.retry import Backoff, is_transient
from koord.kube.turns import in_turn
from koord.plain_text import escape

QUIET_SECONDS: Final = 0.3
PATIENCE_SECONDS: Final = 1.5
"""A patch is written after this long, however often it changes."""
LULL_SECONDS: Final = 1.5
"""Yielding ends after this long without such writes: their effects are known by then."""
LONGEST_BACKOFF_SECONDS: Final = 60.0
MAX_INVALID: Final = 10
"""Attempts at an invalid status: the server validates it together with other managers' fields."""
MAX_IN_FLIGHT: Final = 16
MAX_BEGUN: Final = 4
"""Writes that are begun, as a multiple of those in flight: others come after these, in turn."""
MOST_OF_NAMESPACE: Final = 4
"""Writes in flight of one namespace. Its owner decides how large the objects are that the server
reads and writes for each: sixteen at once of a quarter megabyte keep two processors busy."""
MAX_REMEMBERED: Final = 1 << 16
_TICK: Final = 0.05
_TRANSITION: Final = "lastTransitionTime"


@dataclass(frozen=True, slots=True)
class Pace:
    """How writes of statuses give way to writes that pods wait for.

    Patches that are not urgent yield for at most ``seconds`` longer; ``most`` are in flight.
    """

    seconds: float
    most: int = MAX_IN_FLIGHT


AT_ONCE: Final = Pace(0.0)
AFTER_BINDINGS: Final = Pace(8.0)
"""While binding saturates the server most patches are superseded within this time, and each costs
the server as much as placing two pods."""
BEHIND_ALL: Final = Pace(30.0, most=1)
"""For statuses that nobody waits for. Hundreds of nodes change while pods are bound to them, and
applying the status of a node's devices costs the server as much as placing five pods."""


@dataclass(frozen=True, slots=True)
class ConditionPatch:
    """One condition; its transition time is added when it is rendered."""

    type: str
    status: bool
    reason: str
    message: str
    observed_generation: int | None = None


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """All conditions and other status fields (as JSON) that one writer owns on one object."""

    conditions: tuple[ConditionPatch, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    is_urgent: bool = False
    """Whether a user has to act on it: then it does not yield to other writes."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Annotations and finalizers of this writer, as in the object's metadata."""


Present: TypeAlias = Callable[[ObjectRef], Mapping[str, Any] | None]
"""Returns the last observed status (or annotations) of an object; None if it is gone.

The server ignores the uid when a status is applied to a custom resource, so only this keeps a
recreated object from getting the status of its predecessor.
"""


@dataclass(frozen=True, slots=True)
class Former:
    """A field manager of an earlier release, and whether it owns fields of the status."""

    manager: str
    is_of_status: bool = True


@dataclass(frozen=True, slots=True)
class Form:
    """How a status is written: media type and query parameters of the request.

    ``former`` are field managers whose fields belong to this writer now.
    """

    media: Media
    params: Mapping[str, str]
    former: tuple[Former, ...] = ()


def applied_by(manager: str, *former: Former) -> Form:
    """Server-side apply: fields that the manager no longer sets are removed."""
    return Form(Media.APPLY_PATCH, {"fieldManager": manager, "force": "true"}, former)


MERGED: Final = Form(Media.STRATEGIC_MERGE_PATCH, {})
"""For pods: conditions are merged by type, other writers' conditions stay."""


@dataclass(slots=True)
class StatusStats:
    """Counters since the start."""

    written: int = 0
    unchanged: int = 0
    gone: int = 0
    refused: int = 0
    retried: int = 0
    last_refusal: str = ""


@dataclass(slots=True)
class _Pending:
    ref: ObjectRef
    patch: StatusPatch
    last: float
    """Latest time to write."""
    due: float
    attempt: int = 0

    def due_after(self, delay: float) -> float:
        """Return when to write; what is not urgent waits ``delay`` seconds longer."""
        return self.due if self.patch.is_urgent else self.due + delay


class StatusWriter:
    """Writes status patches of objects of any kind. Run ``run`` in a task group.

    ``present_metadata`` returns what an object shows of the metadata that belongs to this writer.
    ``is_busy`` returns whether the API server has more urgent work. ``wall_clock`` returns seconds
    since the epoch. ``observe`` gets the duration of each request in seconds, also of failed ones.
    """

    def __init__(  # noqa: PLR0913 - all are collaborators
        self,
        client: Client,
        form: Form,
        present: Present,
        pace: Pace = AT_ONCE,
        is_busy: Callable[[], bool] = lambda: False,
        *,
        present_metadata: Present = lambda _: {},
        wall_clock: Callable[[], float] = time.time,
        observe: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.stats = StatusStats()
        self._client = client
        self._form = form
        self._present = present
        self._present_metadata = present_metadata
        self.has_subresource = True
        """False for a custom resource whose definition has no ``status`` subresource."""
        self._is_busy = is_busy
        self._pace = pace
        self._wall_clock = wall_clock
        self._observe = observe
        self._backoff = Backoff(cap=LONGEST_BACKOFF_SECONDS)
        self._isolated = Isolation("status-writes")
        self._pending: dict[str, _Pending] = {}
        """By object uid."""
        self._written: OrderedDict[str, tuple[ObjectRef, Mapping[str, Any]]] = OrderedDict()
        """Object uid -> the status written last, in the order in which it was written or seen."""
        self._taken_over: OrderedDict[str, None] = OrderedDict()
        """Uids of objects on which former managers own nothing any more."""
        self._in_flight: set[str] = set()
        self._begun: Counter[str] = Counter()
        """Namespace -> writes that are begun; those of the cluster are in the empty one."""
        self._places: dict[str, asyncio.Semaphore] = {}
        """Namespace -> its part of the writes in flight, while it has begun any."""
        self._yields_until = 0.0
        self._delay = 0.0
        """By how much patches that are not urgent are late now, to let others pass."""
        self._look_at = 0.0
        """Nothing is due before: thousands of patches that wait are not looked through."""
        self._wake = asyncio.Event()

    def submit(self, ref: ObjectRef, patch: StatusPatch) -> None:
        """Have a patch written soon; it replaces an earlier one of the same object."""
        now = time.monotonic()
        earlier = self._pending.get(ref.uid)
        last = now + PATIENCE_SECONDS if earlier is None else earlier.last
        due = min(now + QUIET_SECONDS, last)
        if earlier is not None and earlier.attempt:
            # A change does not shorten the backoff after a failure.
            due, last = earlier.due, earlier.last
        if earlier is not None and earlier.patch.is_urgent:
            patch = replace(patch, is_urgent=True)
        attempt = 0 if earlier is None else earlier.attempt
        self._put(_Pending(ref, patch, last, due, attempt))

    def _put(self, pending: _Pending) -> None:
        self._pending[pending.ref.uid] = pending
        self._look_at = min(self._look_at, pending.due_after(self._delay))
        self._wake.set()

    async def run(self) -> None:
        slots = asyncio.Semaphore(self._pace.most)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                now = time.monotonic()
                if self._is_busy():
                    self._yields_until = now + LULL_SECONDS
                # Urgent patches never yield; the others are written in the end.
                delay = self._pace.seconds if now < self._yields_until else 0.0
                if delay != self._delay:
                    self._delay, self._look_at = delay, now
                for pending in self._find_next(now) if self._look_at <= now else ():
                    uid = pending.ref.uid
                    self._in_flight.add(uid)
                    self._begun[pending.ref.namespace] += 1
                    group.create_task(self._write_one(self._pending.pop(uid), slots))
                if not self._pending:
                    self._wake.clear()
                await asyncio.sleep(_TICK)

    def _find_next(self, now: float) -> list[_Pending]:
        """Return the patches to write next.

        One write per object at a time, or an old status could arrive after a new one.
        """
        due: list[_Pending] = []
        self._look_at = math.inf
        for uid, pending in self._pending.items():
            if uid in self._in_flight:
                continue  # the end of that write has them looked through
            due_at = pending.due_after(self._delay)
            if due_at <= now:
                due.append(pending)
            else:
                self._look_at = min(self._look_at, due_at)
        most = MAX_BEGUN * self._pace.most
        free = max(0, most - len(self._in_flight))
        # Half is left to others, however many one namespace has.
        left = {name: max(0, most // 2 - count) for name, count in self._begun.items() if name}
        return list(islice(in_turn(due, lambda pending: pending.ref.namespace, left), free))

    async def _write_one(self, pending: _Pending, slots: asyncio.Semaphore) -> None:
        """Write one patch; queue it again after a transient error, unless there is a newer one."""
        uid, namespace = pending.ref.uid, pending.ref.namespace
        try:
            async with self._place_of(namespace), slots:
                await self._write(pending.ref, pending.patch)
        except NotFound:
            self.stats.gone += 1
        except KubeError as error:
            self._retry_or_drop(pending, error)
        except Exception as error:
            if must_end(error):
                raise
            self._isolated.note(pending.ref.path, error)
            self.stats.refused += 1
            self.stats.last_refusal = repr(error)
        finally:
            self._in_flight.discard(uid)
            if uid in self._pending or len(self._in_flight) <= MAX_BEGUN * self._pace.most // 2:
                self._look_at = 0.0
            self._begun[namespace] -= 1
            if not self._begun[namespace]:
                del self._begun[namespace]
                self._places.pop(namespace, None)

    def _place_of(self, namespace: str) -> asyncio.Semaphore:
        most = MOST_OF_NAMESPACE if namespace else self._pace.most
        return self._places.setdefault(namespace, asyncio.Semaphore(most))

    async def _write(self, ref: ObjectRef, patch: StatusPatch) -> None:
        present, metadata = self._present(ref), self._present_metadata(ref)
        if present is None or metadata is None:
            self.stats.gone += 1
            return
        status = self._find_news(ref, patch, present)
        changed = patch.metadata if patch.metadata != metadata else None
        if status is None and changed is None:
            self.stats.unchanged += 1
            return
        former = await self._send(ref, status, changed)
        self.stats.written += 1
        if former and ref.uid not in self._taken_over:
            if status is None:
                status = render(patch, present, self._wall_clock())
            await self._send(ref, status, patch.metadata or None)
            for manager in former:
                await self._release(ref, manager)
            # Once: somebody else may use the name of a manager.
            self._taken_over[ref.uid] = None
            if len(self._taken_over) > MAX_REMEMBERED:
                self._taken_over.popitem(last=False)
        if status is not None:
            self._remember(ref, status)

    def _find_news(
        self, ref: ObjectRef, patch: StatusPatch, present: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Return the status to write, None if the object has it."""
        _, written = self._written.get(ref.uid, (ref, None))
        now = self._wall_clock()
        status = render(patch, present if written is None else written, now)
        is_there = is_current(status, present)
        if written is None:
            # What an earlier process wrote and we do not set must be removed.
            is_sole = self._form.media is Media.APPLY_PATCH
            has_more = is_sole and _has_more(present, status)
            return None if status and is_there and not has_more else status
        if status != written:
            return status
        return None if is_there or not present else render(patch, present, now)

    async def _send(
        self, ref: ObjectRef, status: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None
    ) -> list[Former]:
        """Write what is given; return the former managers that the object shows."""
        identity = {"name": ref.name, "uid": ref.uid}
        base = {"apiVersion": ref.api_version, "kind": ref.kind}
        answer = b""
        if not self.has_subresource:
            # One manager has one list of fields here: what is left out would be removed.
            _, written = self._written.get(ref.uid, (ref, self._present(ref) or {}))
            status = written if status is None else status
            metadata = self._present_metadata(ref) if metadata is None else metadata
            body = {**base, "metadata": {**identity, **(metadata or {})}, "status": status}
            answer = await self._patch(ref.path, body)
            return self._find_former(answer)
        if metadata is not None:
            body = {**base, "metadata": {**identity, **metadata}}
            answer = await self._patch(ref.path, body)
        if status is not None:
            body = {**base, "metadata": identity, "status": status}
            answer = await self._patch(f"{ref.path}/status", body)
        return self._find_former(answer)

    async def _patch(self, path: str, body: Mapping[str, Any]) -> bytes:
        started = time.monotonic()
        try:
            return await self._client.patch(path, body, self._form.media, self._form.params)
        finally:
            self._observe(time.monotonic() - started)

    def _find_former(self, answer: bytes) -> list[Former]:
        return [
            former
            for former in self._form.former
            if f'"manager":"{former.manager}"'.encode() in answer
        ]

    async def _release(self, ref: ObjectRef, former: Former) -> None:
        """Have a field manager of an earlier release own nothing, by applying nothing."""
        is_of_subresource = former.is_of_status and self.has_subresource
        path = f"{ref.path}/status" if is_of_subresource else ref.path
        identity = {"name": ref.name, "uid": ref.uid}
        body = {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": identity}
        await self._client.patch(
            path, body, self._form.media, {**self._form.params, "fieldManager": former.manager}
        )

    def _remember(self, ref: ObjectRef, status: Mapping[str, Any]) -> None:
        """Remember what was written, and forget what was written to objects that are gone.

        Two others are looked at each time, so at most about half of them are gone.
        """
        self._written[ref.uid] = ref, status
        self._written.move_to_end(ref.uid)
        for _ in range(min(2, len(self._written))):
            uid, (other, _) = next(iter(self._written.items()))
            self._written.move_to_end(uid)
            if self._present(other) is None:
                del self._written[uid]
        if len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)

    def _retry_or_drop(self, pending: _Pending, error: KubeError) -> None:
        if not self._may_pass(error, pending.attempt):
            # The object was recreated, or a retry would fail alike.
            self.stats.refused += 1
            self.stats.last_refusal = str(error)
            return
        self.stats.retried += 1
        delay = self._backoff.delay(pending.attempt, error)
        newer = self._pending.get(pending.ref.uid, pending)
        newer.attempt = pending.attempt + 1
        newer.due = newer.last = time.monotonic() + delay
        self._put(newer)

    def _may_pass(self, error: KubeError, attempt: int) -> bool:
        """Whether to retry. Also when forbidden: a patch is submitted once, and rights may return.

        A merge patch stays invalid once its uid belongs to a deleted object.
        """
        if isinstance(error, Invalid):
            return self._form.media is Media.APPLY_PATCH and attempt < MAX_INVALID
        return is_transient(error) or isinstance(error, Forbidden)


def render(patch: StatusPatch, present: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the status to write; transition times change with status or reason of a condition.

    Something may wait for days, and for a reason that began a minute ago.
    """
    conditions_before = conditions_of(present)
    messages = [escape(condition.message) for condition in patch.conditions]
    time = format_time(now)
    conditions = [
        _render_condition(c, message, conditions_before.get(c.type), time)
        for c, message in zip(patch.conditions, messages, strict=True)
    ]
    return {**patch.fields, **({"conditions": conditions} if conditions else {})}


def is_current(status: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    present_conditions = conditions_of(present)
    return all(
        _holds(present_conditions.get(condition["type"]), condition)
        for condition in status.get("conditions", ())
    ) and all(present.get(name) == value for name, value in status.items() if name != "conditions")


def _has_more(present: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether an object shows fields or conditions that a status does not set."""
    types = {condition["type"] for condition in status.get("conditions", ())}
    return bool(present.keys() - {*status, "conditions"} or conditions_of(present).keys() - types)


def _holds(present: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    return present is not None and all(present.get(key) == wanted[key] for key in wanted)


def conditions_of(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    conditions: Iterable[Any] = status.get("conditions") or ()
    return {c["type"]: c for c in conditions if isinstance(c, Mapping) and "type" in c}


def _render_condition(
    condition: ConditionPatch, message: str, present: Mapping[str, Any] | None, now: str
) -> dict[str, Any]:
    status = "True" if condition.status else "False"
    is_same = present is not None and (present.get("status"), present.get("reason")) == (
        status,
        condition.reason,
    )
    since = present.get(_TRANSITION) if present is not None and is_same else None
    rendered = {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": message,
        _TRANSITION: since or now,
    }
    if condition.observed_generation is not None:
        rendered["observedGeneration"] = condition.observed_generation
    return rendered
