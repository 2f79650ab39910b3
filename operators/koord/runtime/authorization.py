"""Asks the API server who may read a page: a TokenReview, then a SubjectAccessReview.

As with kube-rbac-proxy, a reader sends its token and needs the verb of its request on the path:
``get`` to read, ``put`` to set. Answers are kept for a short time. Only one reader is asked about
at a time, and few may wait, so that a flood of requests becomes no flood of reviews.
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
from koord.runtime.readers import Reader

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
    """Decides about readers of the pages of one area."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[bytes, tuple[float, Reader]] = OrderedDict()
        """Digest of a question -> until when its answer counts, and the answer; oldest first."""
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def find_reader(self, authorization: str, path: str, verb: str) -> Reader:
        """Return who sends a header, with a status: 200, 401, 403, or 503 if nobody can tell."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return Reader(401)
        key = sha256(f"{token} {verb} {path}".encode(errors="surrogateescape")).digest()
        cached = self._find(key)
        if cached is not None or self._waiting >= MOST_WAITING:
            return cached or Reader(503)
        self._waiting += 1
        try:
            async with self._lock:
                return self._find(key) or self._keep(key, await self._ask(token, path, verb))
        except (KubeError, msgspec.DecodeError) as error:
            log.warning("Cannot check who reads a page", extra={"problem": str(error)})
            return Reader(503)
        finally:
            self._waiting -= 1

    def _find(self, key: bytes) -> Reader | None:
        until, reader = self._kept.get(key, (0.0, None))
        return reader if time.monotonic() < until else None

    def _keep(self, key: bytes, reader: Reader) -> Reader:
        self._kept[key] = (time.monotonic() + KEPT_SECONDS, reader)
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return reader

    async def _ask(self, token: str, path: str, verb: str) -> Reader:
        authentication = await self._review(
            _TOKEN_REVIEWS, {"kind": "TokenReview", "spec": {"token": token}}
        )
        if not authentication.authenticated:
            return Reader(401)
        user = authentication.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        access = await self._review(_ACCESS_REVIEWS, {"kind": "SubjectAccessReview", "spec": spec})
        return Reader(200 if access.allowed else 403, user.username)

    async def _review(self, path: str, body: dict[str, Any]) -> _TokenStatus:
        answer = await self._client.post(path, body)
        return msgspec.json.decode(answer, type=_TokenReview).status
