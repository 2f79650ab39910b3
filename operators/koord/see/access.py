"""Who asks, on one's own machine: whoever knows the key that ``koord page`` prints.

Here alone it is known by what an asker is recognised, and which names the server has: as a bearer
token or as the cookie that it is traded for, under a name of the loopback. A server for several
people has another class with these methods. Knows no answer.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_WHAT_TO_SEND: Final = "send the key that koord page printed"


@dataclass(slots=True)
class KeyAccess:
    """Lets in who knows ``key``; ``port`` is that of the socket, which clients must have meant."""

    key: str
    port: int = 0
    _cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def check_host(self, request: web.Request) -> None:
        """Refuse other names, so no page of others reaches the server by a name of its own.

        Raises ``HTTPMisdirectedRequest``.
        """
        if request.host not in {f"{name}:{self.port}" for name in _NAMES}:
            raise web.HTTPMisdirectedRequest(reason="this is no name of this server")

    def check_asker(self, request: web.Request) -> None:
        """Refuse who does not know the key. Raises ``HTTPUnauthorized``."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _equal(token.strip(), self.key):
            return
        if not _equal(request.cookies.get(self._cookie_name, ""), self._cookie):
            raise web.HTTPUnauthorized(reason=_WHAT_TO_SEND)

    def begin_session(self, body: Mapping[str, Any], response: web.Response) -> None:
        """Trade the key for a cookie that scripts cannot read. Raises ``HTTPUnauthorized``."""
        if not _equal(str(body.get("key", "")), self.key):
            raise web.HTTPUnauthorized(reason=_WHAT_TO_SEND)
        response.set_cookie(
            self._cookie_name, self._cookie, httponly=True, samesite="Strict", path="/"
        )

    @property
    def _cookie_name(self) -> str:
        """Cookies are sent to every port of a host: each page has one of its own."""
        return f"koord-{self.port}"


def _equal(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())
