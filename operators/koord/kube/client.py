"""The one HTTP client: bytes in, bytes out, typed errors.

Every placed pod goes through it, so it is thin: no generated models, no environment lookups per
request, no compression. Requests use the connection ``pool``; ``streams`` carry watches, and all
requests when there is a proxy. It knows the API's paths and media types, but no resources. Callers
decide what to retry; only a 401 is retried here, once, with renewed credentials.

``RefusedWrites`` are the kinds of writes that the API server refuses, for ``koord status``.

A kind of write is refused from an answer 403 until one of the same kind succeeds, or until none has
been tried for a while. In a namespace that is being deleted nothing can be created: that answer is
no lack of a right.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import urlencode
from weakref import WeakSet

import msgspec

from koord.kube.config import Access, Credentials
from koord.kube.errors import (
    ConnectionLost,
    Forbidden,
    Garbled,
    NotFound,
    Unauthorized,
    error_of_answer,
)
from koord.kube.http1 import Request, RequestWriter
from koord.kube.pool import Origin, Pool, permit_always

if TYPE_CHECKING:
    from koord.kube.streams import Streams

T = TypeVar("T")

_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The form of a list of objects without what is in them; watches have the like."""
_PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


class Media(StrEnum):
    """Content types of request bodies."""

    JSON = "application/json"
    JSON_PATCH = "application/json-patch+json"
    MERGE_PATCH = "application/merge-patch+json"
    STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
    APPLY_PATCH = "application/apply-patch+yaml"


def accept_of(method: str) -> str:
    """Return the ``Accept`` header: of a patched object only the metadata is wanted back."""
    return f"{_METADATA}, {Media.JSON}" if method == "PATCH" else Media.JSON


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] | None = None


class Client:
    """Talks to one API server. Use it as an async context manager.

    Bodies are objects that msgspec can encode, or bytes. ``permit`` is called just before a write
    is sent and may raise. All methods raise the errors of ``koord.kube.errors``.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        permit: Callable[[], None] | None = None,
        user_agent: str = "koord-operators",
    ) -> None:
        self._credentials = credentials
        self._permit = permit or permit_always
        self.refused = RefusedWrites()
        self._headers = {"User-Agent": user_agent}
        self._is_proxied = any(os.environ.get(name) for name in _PROXY_VARIABLES)
        self._access = Access("")
        self._writer = RequestWriter("", {})
        self._pool = Pool(Origin("", None, ""))
        self._kept_open = 0
        """Number of connections that are kept open."""
        self._retired: WeakSet[Pool] = WeakSet()
        """Replaced pools that still carry requests."""
        self._is_open = False
        self._streams: Streams | None = None

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # First, so that no later request opens a connection again.
        self._is_open = False
        await asyncio.gather(*(pool.close() for pool in {self._pool, *self._retired}))
        if self._streams is not None:
            await self._streams.close()

    @property
    def credentials(self) -> Credentials:
        return self._credentials

    async def keep_open(self, count: int) -> None:
        """Keep ``count`` connections open, so that a burst of writes does not wait for handshakes.

        Has no effect with a proxy.
        """
        self._kept_open = count
        access = await self._credentials.current()
        if self._is_open and not self._uses_proxy(access):
            self._use(access)
            self._pool.keep_open(count, self._make_probe)

    async def _make_probe(self) -> bytes:
        """Return a request that needs no rights and costs the server almost nothing."""
        access = await self._credentials.current()
        if not self._is_open or self._uses_proxy(access):
            raise ConnectionLost("no connections are kept open any more", sent=False)
        self._use(access)
        return self._writer.write(Request("GET", "/version", accept_of("GET")))

    async def get(
        self,
        path: str,
        of: type[T],
        params: Mapping[str, str] | None = None,
    ) -> T:
        return _decode(path, await self.request("GET", path, params=params), of)

    async def get_as(self, accept: str, path: str, of: type[T]) -> T:
        """Get something in another form than its own, such as its metadata alone."""
        answer = await self.request("GET", path, accept=f"{accept}, {Media.JSON}")
        return _decode(path, answer, of)

    async def list(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        is_metadata_only: bool = False,
    ) -> bytes:
        accept = f"{METADATA_LIST}, {Media.JSON}" if is_metadata_only else ""
        return await self.request("GET", path, params=params, accept=accept)

    async def patch(
        self, path: str, body: Any, media: Media, params: Mapping[str, str] | None = None
    ) -> bytes:
        """Change an object; returns its metadata."""
        return await self.request("PATCH", path, body=body, media=media, params=params)

    async def post(self, path: str, body: Any) -> bytes:
        return await self.request("POST", path, body=body)

    async def put(self, path: str, body: Any) -> bytes:
        return await self.request("PUT", path, body=body)

    async def delete(self, path: str, *, uid: str = "", grace_seconds: int | None = None) -> bytes:
        """Delete an object; with ``uid`` only if it still has that uid."""
        options: dict[str, Any] = {}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await self.request("DELETE", path, body=options)

    async def request(  # noqa: PLR0913 - of one request
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        media: Media = Media.JSON,
        params: Mapping[str, str] | None = None,
        accept: str = "",
    ) -> bytes:
        """Send a request; ``accept`` is for answers in another form than the usual one."""
        content = None if body is None else body if isinstance(body, bytes) else _encode(body)
        request = Request(
            method, _target(path, params), accept or accept_of(method), content, media
        )
        if method == "GET":
            return await self._with_access(lambda access: self._send(access, request))
        try:
            answer = await self._with_access(lambda access: self._send(access, request))
        except Forbidden as error:
            self.refused.note_refused(method, path, error)
            raise
        self.refused.note_allowed(method, path)
        return answer

    async def served_resources(self, group_version: str) -> frozenset[str]:
        """Return the plurals of a group version, with subresources such as ``podgroups/status``.

        Empty for a group that is not installed.
        """
        root = "/apis" if "/" in group_version else "/api"
        try:
            resource_list = await self.get(f"{root}/{group_version}", _ResourceList)
        except NotFound:
            return frozenset()
        return frozenset(resource.name for resource in resource_list.resources or ())

    @asynccontextmanager
    async def watch(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        silence: float,
        is_metadata_only: bool = False,
    ) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        """Open a watch; yields a function that waits for the next bytes, empty at the end.

        The bytes may end in the middle of a line. Raises ``ConnectionLost`` when nothing arrives
        for ``silence`` seconds or the connection breaks.
        """
        target = _target(path, {**params, "watch": "true"})
        accept = f"{_METADATA}, {Media.JSON}" if is_metadata_only else accept_of("GET")
        request = Request("GET", target, accept)
        streams = self._open_streams()
        watch = await self._with_access(
            lambda access: streams.watch(access, request, silence=silence)
        )
        try:
            yield watch.read
        finally:
            watch.close()

    def _open_streams(self) -> "Streams":
        if not self._is_open:
            raise ConnectionLost("the client is not open", sent=False)
        if self._streams is None:
            # Imported with the first watch: the import takes a fifth of a short command's time.
            from koord.kube.streams import Streams  # noqa: PLC0415

            self._streams = Streams(self._headers, self._permit, reads_proxy=self._is_proxied)
        return self._streams

    async def _with_access(self, send: "Callable[[Access], Awaitable[T]]") -> T:
        """Call with the current credentials, and again with renewed ones after a 401."""
        access = await self._credentials.current()
        try:
            return await send(access)
        except Unauthorized:
            return await send(await self._credentials.renew(access))

    async def _send(self, access: Access, request: Request) -> bytes:
        if self._uses_proxy(access):
            return await self._open_streams().send(access, request)
        if not self._is_open:
            raise ConnectionLost("the client is not open", sent=False)
        self._use(access)
        is_read = request.method == "GET"
        permit = permit_always if is_read else self._permit
        written = self._writer.write(request)
        response = await self._pool.send(written, permit, is_safe=is_read)
        if response.status < 300:
            return response.body
        raise error_of_answer(response.status, response.body, response.retry_after)

    def _uses_proxy(self, access: Access) -> bool:
        return self._is_proxied or bool(access.proxy)

    def _use(self, access: Access) -> None:
        """Write later requests for this access; a new server gets a new pool."""
        if access is self._access:
            return
        signed = {"Authorization": access.authorization} if access.authorization else {}
        self._access, self._writer = access, RequestWriter(access.server, self._headers | signed)
        origin = Origin(access.server, access.tls, access.server_name)
        if origin != self._pool.origin:
            self._pool.retire()
            self._retired.add(self._pool)
            self._pool = Pool(origin)
            if self._kept_open:
                self._pool.keep_open(self._kept_open, self._make_probe)


def _decode(path: str, body: bytes, of: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=of)
    except msgspec.DecodeError as error:
        raise Garbled(f"cannot decode {path}: {error}") from error


def _encode(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        # Text quoted from an object may hold lone surrogates; only this request may fail.
        raise Garbled(f"cannot encode the request: {error}") from error


def _target(path: str, params: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(params)}" if params else path


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
