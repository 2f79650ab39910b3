"""Remembers which kinds of writes the API server refuses, for ``koord status``.

A kind of write is refused from an answer 403 until one of the same kind succeeds, or until none has
been tried for a while. In a namespace that is being deleted nothing can be created: that answer is
no lack of a right.
"""

import time
from collections.abc import Callable
from typing import Final

from koord.kube.errors import Forbidden

KEPT_SECONDS: Final = 600.0
MAX_TEXTS: Final = 4
MAX_TEXT: Final = 300
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BEING_DELETED: Final = "because it is being terminated"


class RefusedWrites:
    """Kind of write -> when it was refused last, and the server's answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused: dict[str, tuple[float, str]] = {}

    def note_refused(self, method: str, path: str, error: Forbidden) -> None:
        if _BEING_DELETED not in error.message:
            self._refused[name_write(method, path)] = self._clock(), error.message

    def note_allowed(self, method: str, path: str) -> None:
        if self._refused:
            self._refused.pop(name_write(method, path), None)

    def describe(self) -> tuple[str, ...]:
        """Return ``verb resource: answer`` for each kind that is refused now, the latest first."""
        oldest = self._clock() - KEPT_SECONDS
        self._refused = {
            kind: refused for kind, refused in self._refused.items() if refused[0] >= oldest
        }
        latest = sorted(self._refused.items(), key=lambda item: -item[1][0])
        return tuple(f"{kind}: {answer}"[:MAX_TEXT] for kind, (_, answer) in latest[:MAX_TEXTS])


def name_write(method: str, path: str) -> str:
    """Return verb and resource of a request, as RBAC names them: ``patch pods/status``."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    resource, *_, subresource = parts if len(parts) > 2 else (*parts[:1], "")
    name = f"{resource}/{subresource}" if subresource else resource
    return f"{_VERBS.get(method, method.lower())} {name}"
