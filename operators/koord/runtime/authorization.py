"""Asks the API server who may read the metrics: a TokenReview, then a SubjectAccessReview.

As with kube-rbac-proxy, a reader sends its token and needs the verb ``get`` on the path. Answers
are kept for a short time. Only one reader is asked about at a time, and few may wait, so that a
flood of requests becomes no flood of reviews.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from koord.kube.client import Client
from koord.kube.errors import KubeError

log = logging.getLogger(__name__)

KEPT_SECONDS: Final = 60.0
MOST_KEPT: Final = 64
MOST_WAITING: Final = 16
_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _TokenUser(Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(Struct):
    authenticated: bool = False
    allowed: bool = False
    user: _TokenUser = msgspec.field(default_factory=_TokenUser)


class _TokenReview(Struct):
    status: _TokenStatus


class Authorizer:
    """Decides about readers of one path."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path
        self._kept: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        """Digest of a token -> until when its status counts, and the status; oldest first."""
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def status_for(self, authorization: str) -> int:
        """Return the HTTP status for a header: 200, 401, 403, or 503 if nobody can tell."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return 401
        key = sha256(token.encode()).digest()
        cached = self._find(key)
        if cached is not None or self._waiting >= MOST_WAITING:
            return cached or 503
        self._waiting += 1
        try:
            async with self._lock:
                return self._find(key) or self._keep(key, await self._ask(token))
        except (KubeError, msgspec.DecodeError) as error:
            log.warning("Cannot check who reads the metrics", extra={"problem": str(error)})
            return 503
        finally:
            self._waiting -= 1

    def _find(self, key: bytes) -> int | None:
        until, status = self._kept.get(key, (0.0, 0))
        return status if time.monotonic() < until else None

    def _keep(self, key: bytes, status: int) -> int:
        self._kept[key] = (time.monotonic() + KEPT_SECONDS, status)
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return status

    async def _ask(self, token: str) -> int:
        authentication = await self._review(
            _TOKEN_REVIEWS, {"kind": "TokenReview", "spec": {"token": token}}
        )
        if not authentication.authenticated:
            return 401
        user = authentication.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        access = await self._review(_ACCESS_REVIEWS, {"kind": "SubjectAccessReview", "spec": spec})
        return 200 if access.allowed else 403

    async def _review(self, path: str, body: dict[str, Any]) -> _TokenStatus:
        answer = await self._client.post(path, body)
        return msgspec.json.decode(answer, type=_TokenReview).status
