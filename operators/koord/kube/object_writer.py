"""Carries out :class:`ObjectWrite` values: reads the object, and patches it if that is needed.

It is read first, so that a write that took effect without a response, or before a crash, is not
repeated, and because a JSON patch has to create what a field is in. The patch tests all that the
write tests: what changes in between is not overwritten. What is written is not known here.
"""

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from koord.core.model.plan import ObjectWrite
from koord.kube.client import Client, Media
from koord.kube.errors import Conflict, Invalid, KubeError, NotFound
from koord.kube.outcomes import (
    PATIENCE_SECONDS,
    Done,
    ObjectChanged,
    Outcome,
    Refused,
    Unknown,
    describe,
    repeat_until_known,
)
from koord.kube.retry import Backoff, is_transient

MOST_READS: Final = 5
"""An object that changes so often between reading and writing is left to a later attempt."""


class ObjectWriter:
    """Writes objects, sharing the ``slots`` of other writes."""

    def __init__(self, client: Client, slots: asyncio.Semaphore) -> None:
        self._client, self._slots, self._backoff = client, slots, Backoff()

    async def write(self, change: ObjectWrite, *, patience: float = PATIENCE_SECONDS) -> Outcome:
        """Write until the outcome is known: done, or the object is another than was planned."""
        return await repeat_until_known(lambda: self._attempt(change), patience, self._backoff)

    async def read(self, change: ObjectWrite, of: Unknown) -> Outcome:
        """Return what has come of a write that was ``Unknown``, long enough after it."""
        try:
            async with self._slots:
                document = await self._client.get(change.path, dict[str, Any])
        except NotFound:
            return ObjectChanged(change.path)
        except KubeError as error:
            return Unknown(*describe(error))
        return Done() if _has(document, change.patch) else Refused(of.status, of.message)

    async def _attempt(self, change: ObjectWrite) -> Outcome | KubeError:
        for _ in range(MOST_READS):
            try:
                async with self._slots:
                    document = await self._client.get(change.path, dict[str, Any])
                    if _has(document, change.patch):
                        return Done()
                    if not _has(document, change.before):
                        return ObjectChanged(change.path)
                    patch = make_patch(change, document)
                    await self._client.patch(change.path, patch, Media.JSON_PATCH)
            except NotFound:
                return ObjectChanged(change.path)
            except (Conflict, Invalid) as error:
                refused = Refused(*describe(error))  # or it has changed since: read it again
            except KubeError as error:
                return error if is_transient(error) else Refused(*describe(error))
            else:
                return Done()
        return refused


def make_patch(change: ObjectWrite, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON patch of a write to an object that is like ``document``."""
    shown = deepcopy(dict(document))
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": _first_absent(shown, at), "value": value}
        for at, value in change.before.items()
    ]
    for at, value in change.patch.items():
        if value is not None:
            path = _first_absent(shown, at)
            for part in reversed(_parts(at[len(path) :])):
                value = {part: value}  # noqa: PLW2901 - what is missing around it
            operations.append({"op": "add", "path": path, "value": value})
            _put(shown, path, value)
        elif _look_up(shown, at) is not None:
            operations.append({"op": "remove", "path": at})
    return operations


def _has(document: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    return all(_look_up(document, at) == value for at, value in fields.items())


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _look_up(document: Any, pointer: str) -> Any:
    """Return what is at a pointer; None for nothing."""
    for part in _parts(pointer):
        if isinstance(document, list):
            document = document[int(part)] if part.isdigit() and int(part) < len(document) else None
        else:
            document = document.get(part) if isinstance(document, dict) else None
    return document


def _first_absent(document: Any, pointer: str) -> str:
    """Return the outermost part of a pointer that the document lacks; itself if it lacks none."""
    ends = [at for at, letter in enumerate(pointer) if letter == "/"][1:]
    prefixes = (pointer[:end] for end in ends)
    return next((prefix for prefix in prefixes if _look_up(document, prefix) is None), pointer)


def _put(document: Any, pointer: str, value: Any) -> None:
    *parents, last = _parts(pointer)
    for part in parents:
        document = document[int(part)] if isinstance(document, list) else document[part]
    if isinstance(document, list):
        document[int(last) : int(last) + 1] = [value]
    else:
        document[last] = value
