"""Who asks: what a server has to know of an asker, and how one is recognised on one's own machine.

On one's own machine that is whoever knows the key that ``koord page`` prints: as a bearer token or
as the cookie that it is traded for, under a name of the loopback. A server for several people has
``token_access``. Knows no answer.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from aiohttp import web

from koord.answers.redaction import EVERYTHING, Sight
from koord.runtime.authorization import find_bearer
from koord.runtime.reviews import ResourceRight

_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_WHAT_TO_SEND: Final = "send the key that koord page printed"
FOR_EVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Seen:
    """What an asker may see, and until when that counts, on the monotonic clock."""

    sight: Sight
    until: float


async def _everything(_: Iterable[str], _first: Iterable[str]) -> Seen:
    return Seen(EVERYTHING, FOR_EVER)


async def _anything(_: ResourceRight) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Asker:
    """Somebody who was recognised."""

    name: str = ""
    """Who it is, for people; empty if there can be one only."""
    key: Hashable = None
    """Whose requests are counted together."""
    crowd: Hashable = None
    """Whom it shares with: those who can be made as many as somebody likes. None: nobody."""
    until: float = FOR_EVER
    """When it has to be asked again who this is, on the monotonic clock."""
    look: Callable[[Iterable[str], Iterable[str]], Awaitable[Seen]] = _everything
    """Returns what the asker may see of these namespaces; the last ones matter most.

    Raises ``HTTPServiceUnavailable``."""
    may: Callable[[ResourceRight], Awaitable[bool]] = _anything
    """Returns whether the asker has a right. Raises ``HTTPServiceUnavailable``."""


class AccessControl(Protocol):
    """How a server recognises those who ask."""

    @property
    def login(self) -> str:
        """The path of a form where people say who they are; empty if there is none."""

    def check_host(self, request: web.Request) -> None:
        """Refuse other names, so no page of others reaches the server by a name of its own.

        Raises ``HTTPMisdirectedRequest``.
        """

    async def identify(self, request: web.Request) -> Asker:
        """Return who asks.

        Raises ``HTTPUnauthorized``, and ``HTTPServiceUnavailable`` if nobody can tell.
        """

    async def begin_session(
        self, request: web.Request, body: Mapping[str, Any], response: web.Response
    ) -> None:
        """Trade a secret for a cookie that scripts cannot read. Raises as ``identify`` does."""

    def end_session(self, request: web.Request, response: web.Response) -> None:
        """Forget what the cookie of a request stands for."""


@dataclass(slots=True)
class KeyAccess:
    """Lets in who knows ``key``; ``port`` is that of the socket, which clients must have meant."""

    key: str
    port: int = 0
    login: str = ""
    _cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def check_host(self, request: web.Request) -> None:
        if request.host not in {f"{name}:{self.port}" for name in _NAMES}:
            raise web.HTTPMisdirectedRequest(reason="this is no name of this server")
        refuse_foreign(request)

    async def identify(self, request: web.Request) -> Asker:
        if _equal(bearer_of(request), self.key):
            return Asker()
        if not _equal(request.cookies.get(self._cookie_name, ""), self._cookie):
            raise web.HTTPUnauthorized(reason=_WHAT_TO_SEND)
        return Asker()

    async def begin_session(
        self, request: web.Request, body: Mapping[str, Any], response: web.Response
    ) -> None:
        del request
        if not _equal(str(body.get("key", "")), self.key):
            raise web.HTTPUnauthorized(reason=_WHAT_TO_SEND)
        response.set_cookie(
            self._cookie_name, self._cookie, httponly=True, samesite="Strict", path="/"
        )

    def end_session(self, request: web.Request, response: web.Response) -> None:
        """Take the cookie back; the key, and so what it is traded for, stays the same."""
        del request
        response.del_cookie(self._cookie_name)

    @property
    def _cookie_name(self) -> str:
        """Cookies are sent to every port of a host: each page has one of its own."""
        return f"koord-{self.port}"


def _equal(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())


def bearer_of(request: web.Request) -> str:
    """Return the token that is sent; empty if there is none.

    Raises ``HTTPBadRequest`` for two: a proxy may have looked at the other one.
    """
    headers = request.headers.getall("Authorization", ())
    if len(headers) > 1:
        raise web.HTTPBadRequest(reason="send one header Authorization")
    return find_bearer(headers[0]) if headers else ""


def refuse_foreign(request: web.Request) -> None:
    """Refuse what a page of another server makes a browser ask; links to our pages are followed.

    Browsers say from where a request comes, and no script can change it. The cookie is not sent
    from other sites, but from other names of the same one. Raises ``HTTPForbidden``.
    """
    origin = request.headers.get("Origin", "")
    is_foreign = bool(origin) and _authority_of(origin) != request.host
    if request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}:
        is_link = request.headers.get("Sec-Fetch-Mode") == "navigate"
        is_foreign = is_foreign or request.method != "GET" or not is_link
    if is_foreign:
        raise web.HTTPForbidden(reason="the request comes from a page of another server")


def _authority_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
