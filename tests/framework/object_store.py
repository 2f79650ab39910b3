"""Objects in memory that a real ``ObjectWriter`` reads and patches, as the API server would.

``failures`` are raised by the next requests, in order; ``None`` lets one through. With
``is_answered`` false a write takes effect, and its answer is lost.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

from tests.model.jsonpatch import PatchFailed, apply_json_patch

from koord.kube.errors import ConnectionLost, Invalid, KubeError, NotFound
from koord.kube.object_writer import ObjectWriter


class ObjectStore:
    def __init__(self, **objects: dict[str, Any]) -> None:
        self.objects = {f"/{name}": body for name, body in objects.items()}
        self.failures: list[KubeError | None] = []
        self.is_answered = True
        self.patches = 0
        self.writer = ObjectWriter(self, asyncio.Semaphore(4))  # type: ignore[arg-type]

    async def get(self, path: str, _: Any) -> dict[str, Any]:
        self._fail()
        if path not in self.objects:
            raise NotFound(404, "NotFound", path)
        shown = deepcopy(self.objects[path])
        await asyncio.sleep(0)  # others may write between reading and writing
        return shown

    async def patch(self, path: str, operations: list[dict[str, Any]], _: Any) -> bytes:
        self._fail()
        after = deepcopy(self.objects[path])
        try:
            apply_json_patch(after, deepcopy(operations))
        except PatchFailed as error:
            raise Invalid(422, "Invalid", str(error)) from error
        self.objects[path] = after
        self.patches += 1
        if not self.is_answered:
            self.is_answered = True
            raise ConnectionLost("the answer is lost", sent=True)
        return b"{}"

    def _fail(self) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
