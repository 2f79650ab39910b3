"""Writes status: only what is new, not too often, and never for an object that is another by now.

What Koordinator keeps in annotations beside the status is written in the same way.

Statements about one object are collected until none has come for a moment, the latest wins, and
what stands in the object already is not written. After a restart nothing is written anew: what the
object showed last is what a statement is compared with, until this writer has written it itself.
What somebody else has changed since is written again when it is said again; but what shows nothing
at all may be older than what was written last, as of a new object, and is left.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from koord.kube.client import Client, Media
from koord.kube.errors import Forbidden, Invalid, KubeError, NotFound
from koord.kube.objects import ObjectRef
from koord.kube.retry import Backoff, is_transient

QUIET_SECONDS: Final = 0.3
PATIENCE_SECONDS: Final = 1.5
"""Seconds after which a statement is written, however often it changes."""
YIELD_SECONDS: Final = 8.0
"""How much longer a statement makes room for writes that pods wait for, if it may.

While as much is being bound as the server takes, most of what could be said is outdated within that
time, and each statement costs the server as much as placing two pods."""
LULL_SECONDS: Final = 1.5
"""After this long without such writes nobody is in a hurry any more: what follows from the last of
them is known by then, and is said at once."""
LONGEST_BACKOFF_SECONDS: Final = 60.0
MAX_INVALID: Final = 10
"""Attempts at what the server calls invalid: what other managers say is judged with it."""
MAX_IN_FLIGHT: Final = 16
MAX_REMEMBERED: Final = 1 << 16
_TICK: Final = 0.05
_TRANSITION: Final = "lastTransitionTime"


@dataclass(frozen=True, slots=True)
class ConditionPatch:
    """One condition as it should be; when it last changed its status is kept by the writer."""

    type: str
    status: bool
    reason: str
    message: str
    observed_generation: int | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """Everything that one writer says about one object: other fields, and its conditions.

    ``fields`` stand beside ``conditions`` in the status, as JSON; what is left out is not said.
    """

    conditions: tuple[ConditionPatch, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    is_urgent: bool = False
    """Whether somebody has to do something about it: then it makes room for nothing."""


Present: TypeAlias = Callable[[ObjectRef], Mapping[str, Any] | None]
"""Returns the status (or the annotations) that an object was last seen with; None if it is gone.

The server does not compare uids when a status is applied to a custom resource, so this is what
keeps a recreated object from getting the status of the one before.
"""


@dataclass(frozen=True, slots=True)
class Form:
    """How a status is written: the media type, and parameters of the request."""

    media: Media
    params: Mapping[str, str]
    is_annotated: bool = False
    """The fields of a statement are annotations instead, and so texts; it has no conditions."""


def applied_by(manager: str) -> Form:
    """Server-side apply: the manager owns what it says, and takes back what it no longer says."""
    return Form(Media.APPLY_PATCH, {"fieldManager": manager, "force": "true"})


def annotated_by(manager: str) -> Form:
    """Server-side apply of annotations, by a manager of their own."""
    return Form(Media.APPLY_PATCH, {"fieldManager": manager, "force": "true"}, is_annotated=True)


MERGED: Final = Form(Media.STRATEGIC_MERGE_PATCH, {})
"""For pods: conditions are merged by type, those of others stay."""


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
    statement: Statement
    last: float
    """Write at the latest then."""
    due: float
    attempt: int = 0

    def is_due(self, now: float, over: float) -> bool:
        """Whether it is to be written; what is not urgent was due at ``over`` already."""
        return self.due <= (now if self.statement.is_urgent else over)


class StatusWriter:
    """Writes statements about objects of any kind in one form. Run ``run`` in a task group.

    ``is_busy`` tells whether there is more urgent work for the API server.
    ``has_subresource`` is False only for custom resources whose definition has no ``status``
    subresource. ``wall_clock`` gives seconds since the epoch. ``observe`` is told how many seconds
    each request took, whatever came of it.
    """

    def __init__(  # noqa: PLR0913 - every one is somebody to work with
        self,
        client: Client,
        form: Form,
        present: Present,
        *,
        has_subresource: bool = True,
        is_busy: Callable[[], bool] = lambda: False,
        wall_clock: Callable[[], float] = time.time,
        observe: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.stats = StatusStats()
        self._client = client
        self._form = form
        self._present = present
        self._suffix = "/status" if has_subresource and not form.is_annotated else ""
        self._is_busy = is_busy
        self._wall_clock = wall_clock
        self._observe = observe
        self._backoff = Backoff(cap=LONGEST_BACKOFF_SECONDS)
        self._pending: dict[str, _Pending] = {}
        """Object uid -> what is to be said about it."""
        self._written: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        """Object uid -> the status that was written last; the longest untouched are dropped."""
        self._flying: set[str] = set()
        self._makes_room_until = 0.0
        self._woken = asyncio.Event()

    def say(self, ref: ObjectRef, statement: Statement) -> None:
        """Have a statement written soon; it replaces an earlier one about the same object."""
        now = time.monotonic()
        earlier = self._pending.get(ref.uid)
        last = now + PATIENCE_SECONDS if earlier is None else earlier.last
        due = min(now + QUIET_SECONDS, last)
        if earlier is not None and earlier.attempt:
            # What was refused for now is not to be tried sooner because it changed.
            due, last = earlier.due, earlier.last
        attempt = 0 if earlier is None else earlier.attempt
        self._pending[ref.uid] = _Pending(ref, statement, last, due, attempt)
        self._woken.set()

    async def run(self) -> None:
        """Write until cancelled."""
        slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._woken.wait()
                now = time.monotonic()
                if self._is_busy():
                    self._makes_room_until = now + LULL_SECONDS
                # The urgent goes first; who waited for long is written all the same.
                over = now - YIELD_SECONDS if now < self._makes_room_until else now
                for uid in [u for u, p in self._pending.items() if p.is_due(now, over)]:
                    if uid not in self._flying:
                        self._flying.add(uid)
                        group.create_task(self._settle(self._pending.pop(uid), slots))
                if not self._pending:
                    self._woken.clear()
                await asyncio.sleep(_TICK)

    async def _settle(self, pending: _Pending, slots: asyncio.Semaphore) -> None:
        """Write one statement; put it back if that may work later and nothing newer is there."""
        uid = pending.ref.uid
        try:
            async with slots:
                await self._write(pending.ref, pending.statement)
        except NotFound:
            self.stats.gone += 1
        except KubeError as error:
            self._judge(pending, error)
        finally:
            self._flying.discard(uid)

    async def _write(self, ref: ObjectRef, statement: Statement) -> None:
        written = self._written.get(ref.uid)
        present = self._present(ref)
        if present is None:
            self.stats.gone += 1
            return
        now = self._wall_clock()
        status = render(statement, present if written is None else written, now)
        is_there = is_said(status, present)
        # What we wrote before and no longer say has to be taken back: only equality will do.
        if (written is None and status and is_there) or (
            status == written and (is_there or not present)
        ):
            self.stats.unchanged += 1
            return
        if status == written:
            status = render(statement, present, now)
        body: dict[str, Any] = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "metadata": {"name": ref.name, "uid": ref.uid},
        }
        if self._form.is_annotated:
            body["metadata"]["annotations"] = status
        else:
            body["status"] = status
        path = ref.path + self._suffix
        started = time.monotonic()
        try:
            await self._client.patch(path, body, self._form.media, self._form.params)
        finally:
            self._observe(time.monotonic() - started)
        self.stats.written += 1
        self._remember(ref.uid, status)

    def _remember(self, uid: str, status: Mapping[str, Any]) -> None:
        self._written[uid] = status
        self._written.move_to_end(uid)
        if len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)

    def _judge(self, pending: _Pending, error: KubeError) -> None:
        if not self._may_pass(error, pending.attempt):
            # Another object of that name by now, or nothing that trying again would mend.
            self.stats.refused += 1
            self.stats.last_refusal = str(error)
            return
        self.stats.retried += 1
        delay = self._backoff.delay(pending.attempt, error)
        newer = self._pending.get(pending.ref.uid, pending)
        newer.attempt = pending.attempt + 1
        newer.due = newer.last = time.monotonic() + delay
        self._pending[pending.ref.uid] = newer
        self._woken.set()

    def _may_pass(self, error: KubeError, attempt: int) -> bool:
        """Whether to try again. Nobody else would: a statement is made once, and rights come back.

        What is merged is invalid for good if the uid is that of another object by now.
        """
        if isinstance(error, Invalid):
            return self._form.media is Media.APPLY_PATCH and attempt < MAX_INVALID
        return is_transient(error) or isinstance(error, Forbidden)


def render(statement: Statement, present: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the status to write; transition times are kept where the status of a condition is."""
    known = conditions_of(present)
    conditions = [_render_condition(c, known.get(c.type), now) for c in statement.conditions]
    return {**statement.fields, **({"conditions": conditions} if conditions else {})}


def is_said(status: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    """Whether all of a rendered status already stands in ``present``."""
    known = conditions_of(present)
    return all(
        _holds(known.get(condition["type"]), condition)
        for condition in status.get("conditions", ())
    ) and all(present.get(name) == value for name, value in status.items() if name != "conditions")


def _holds(present: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    return present is not None and all(present.get(key) == wanted[key] for key in wanted)


def conditions_of(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of a status, by type."""
    conditions: Iterable[Any] = status.get("conditions") or ()
    return {c["type"]: c for c in conditions if isinstance(c, Mapping) and "type" in c}


def _render_condition(
    condition: ConditionPatch, present: Mapping[str, Any] | None, now: float
) -> dict[str, Any]:
    status = "True" if condition.status else "False"
    since = present.get(_TRANSITION) if present and present.get("status") == status else None
    rendered = {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        _TRANSITION: since or format_time(now),
    }
    if condition.observed_generation is not None:
        rendered["observedGeneration"] = condition.observed_generation
    return rendered


def format_time(seconds: float) -> str:
    """Write a time as the API does, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
