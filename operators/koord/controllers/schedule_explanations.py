"""Answers ScheduleExplanations: one after the other, each once a minute, in turns of namespaces.

An answer plans, so it takes time from placement: after each there is a pause of many times its
length, and nothing is answered while the copy of the cluster is stale. Objects are deleted when
their time is over. Nothing is kept but when each object is due.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NoReturn, Protocol

from koord.answers.schedule_explanation import ScheduleQuestion, explain_schedule
from koord.core.engine.state import ClusterState
from koord.isolation import Isolation
from koord.kube.errors import KubeError
from koord.kube.schedule_explanations import ExplanationKey, ExplanationSpec
from koord.kube.turns import in_turn

log = logging.getLogger(__name__)

MOST_OBJECTS: Final = 100
"""Objects that are answered; of each namespace in turn the oldest."""
MOST_BYTES: Final = 256 * 1024
"""Of a status."""
EVERY_SECONDS: Final = 60.0
"""Between two answers for one object."""
LIST_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 1.0
REST: Final = 20
"""Each answer is followed by a pause of this many times its own length."""


class ExplanationApi(Protocol):
    """Lists, reads and writes objects; see ``ScheduleExplanations``."""

    async def list(self) -> list[ExplanationKey]: ...
    async def read(self, key: ExplanationKey) -> ExplanationSpec | None: ...
    async def write(self, key: ExplanationKey, status: Mapping[str, Any]) -> None: ...
    async def delete(self, key: ExplanationKey) -> None: ...


@dataclass(slots=True)
class ExplanationAnswers:
    """Runs while the process leads; ``clock`` gives seconds since the epoch."""

    api: ExplanationApi
    state: ClusterState
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    pause: float = PAUSE_SECONDS
    _objects: list[ExplanationKey] = field(default_factory=list)
    _list_at: float = 0.0
    _due: dict[str, float] = field(default_factory=dict)
    """Uid of an object -> when it is answered again; those that are new are due."""
    _isolated: Isolation = field(default_factory=lambda: Isolation("schedule-explanations"))

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(self.pause)
            if self.is_synced():
                await self.look()

    async def look(self) -> None:
        """Answer the object that has been due longest, if there is one."""
        now = self.clock()
        await self._list(now)
        key = min(self._objects, key=lambda key: self._due.get(key.uid, 0.0), default=None)
        if key is None or self._due.get(key.uid, 0.0) > now:
            return
        self._due[key.uid] = now + EVERY_SECONDS
        with self._isolated.of(key.uid, now):
            await self._serve(key, now)

    async def _list(self, now: float) -> None:
        if now < self._list_at:
            return
        self._list_at = now + LIST_SECONDS
        try:
            listed = await self.api.list()
        except KubeError as error:
            self._list_at = now + EVERY_SECONDS
            log.warning("Cannot list ScheduleExplanations", extra={"problem": str(error)})
            return
        oldest = sorted(listed, key=lambda key: (key.created, key.uid))
        self._objects = list(islice(in_turn(oldest, lambda key: key.namespace), MOST_OBJECTS))
        uids = {key.uid for key in self._objects}
        self._due = {uid: due for uid, due in self._due.items() if uid in uids}

    async def _serve(self, key: ExplanationKey, now: float) -> None:
        try:
            spec = await self.api.read(key)
            if spec is None:
                return
            if spec.ttl and now >= key.created + spec.ttl:
                await self.api.delete(key)
                return
            began = time.perf_counter()
            status = explain_schedule(self.state, ScheduleQuestion(key.namespace, spec.key), now)
            self.pause = max(PAUSE_SECONDS, REST * (time.perf_counter() - began))
            await self.api.write(key, limit_size(status))
        except KubeError as error:
            problem = {"problem": str(error), "object": f"{key.namespace}/{key.name}"}
            log.warning("Cannot answer a ScheduleExplanation", extra=problem)


def limit_size(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status within the limit: first without domains, then without nodes."""
    if len(json.dumps(status)) <= MOST_BYTES:
        return status
    detailed = status["detailedExplanation"][:1]
    shorter = {**status, "detailedExplanation": detailed}
    if len(json.dumps(shorter)) <= MOST_BYTES:
        return shorter
    return {**status, "detailedExplanation": []}
