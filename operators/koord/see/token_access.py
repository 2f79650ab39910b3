"""Lets in who has a token that the API server knows, as a bearer or behind the cookie of a session.

What the asker may see is what the API server says of her rights. Headers in which a proxy would
name a user count for nothing. Knows no answer.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import web

from koord.runtime.reviews import (
    AccessReviews,
    Kept,
    NoReview,
    PathRight,
    TokenHolder,
    TokenReviews,
)
from koord.see.access import Asker, bearer_of, refuse_foreign
from koord.see.askers import Askers, make_refusal
from koord.see.buckets import Buckets
from koord.see.sessions import Sessions

LOGIN: Final = "/login"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
REVIEWS_PER_SECOND: Final = 5
"""Tokens that were not seen before, for each address that sends them."""
_WHAT_TO_SEND: Final = (
    "send a token: Authorization: Bearer …, such as kubectl create token prints, or use /login; "
    "a proxy of the API server takes the token away: use kubectl port-forward or koord page"
)
_NO_GOOD: Final = "the API server does not know this token, or does not any more"
_TOO_MANY: Final = f"at most {REVIEWS_PER_SECOND} unknown tokens per second"


class GivenToken(NamedTuple):
    """A token, and the cookie of the session that it is kept for; empty if it was sent itself."""

    token: str
    cookie: str = ""


@dataclass(slots=True)
class TokenAccess:
    """Recognises users by tokens. ``hosts`` are the names of this server, without a port.

    With ``is_secure`` browsers talk to it by TLS, directly or with a proxy before it. With
    ``hides_amounts`` tenants learn neither positions nor exact amounts of others.
    """

    tokens: TokenReviews
    access: AccessReviews
    hosts: Collection[str] = LOOPBACK
    is_secure: bool = True
    hides_amounts: bool = False
    sessions: Sessions = field(default_factory=Sessions)
    login: str = LOGIN
    _askers: Askers = field(init=False)
    _buckets: Buckets = field(
        default_factory=lambda: Buckets(REVIEWS_PER_SECOND, 4 * REVIEWS_PER_SECOND)
    )

    def __post_init__(self) -> None:
        self._askers = Askers(self.access, hides_amounts=self.hides_amounts)

    def check_host(self, request: web.Request) -> None:
        if _name_of(request.host) not in self.hosts:
            raise web.HTTPMisdirectedRequest(reason="this is no name of this server")
        refuse_foreign(request)

    def find_token(self, request: web.Request) -> GivenToken:
        """Return the token of a request, or of its session. Raises ``HTTPUnauthorized``."""
        token = bearer_of(request)
        if token:
            return GivenToken(token)
        cookie = self._cookie_of(request)
        session = self.sessions.find(cookie)
        if session is None:
            raise web.HTTPUnauthorized(reason=_WHAT_TO_SEND)
        return GivenToken(session.token, cookie)

    async def identify(self, request: web.Request) -> Asker:
        user = await self._find_user(self.find_token(request).token, request)
        if user.value is None:
            self.sessions.end(self._cookie_of(request))
            raise web.HTTPUnauthorized(reason=_NO_GOOD)
        return self._askers.make(user.value, user.until)

    async def may_get(self, request: web.Request, path: str) -> bool:
        """Whether the asker may read a path that is no answer, such as that of the metrics."""
        token = bearer_of(request)
        user = (await self._find_user(token, request)).value if token else None
        if user is None:
            raise web.HTTPUnauthorized(reason=_WHAT_TO_SEND)
        try:
            return (await self.access.may(user, PathRight("get", path))).value
        except NoReview as error:
            raise make_refusal(error) from None

    async def begin_session(
        self, request: web.Request, body: Mapping[str, Any], response: web.Response
    ) -> None:
        """Keep the token of the form, or of the header that a proxy has added."""
        given = str(body.get("token", "")).strip()
        token = given or bearer_of(request)
        user = await self._find_user(token, request)
        if user.value is None:
            raise web.HTTPUnauthorized(reason=_NO_GOOD if token else _WHAT_TO_SEND)
        self.sessions.end(self._cookie_of(request))
        cookie, seconds = self.sessions.begin(token, user.value.digest, user.value.crowd)
        response.set_cookie(
            self._cookie_name,
            cookie,
            max_age=int(seconds),
            httponly=True,
            secure=self.is_secure,
            samesite="Strict",
            path="/",
        )

    def end_session(self, request: web.Request, response: web.Response) -> None:
        self.sessions.end(self._cookie_of(request))
        response.del_cookie(
            self._cookie_name,
            httponly=True,
            secure=self.is_secure,
            samesite="Strict",
            path="/",
        )

    async def _find_user(self, token: str, request: web.Request) -> Kept[TokenHolder | None]:
        if not self.tokens.is_known(token) and not self._buckets.take(request.remote):
            raise web.HTTPTooManyRequests(reason=_TOO_MANY)
        try:
            return await self.tokens.find_user(token)
        except NoReview as error:
            raise make_refusal(error) from None

    def _cookie_of(self, request: web.Request) -> str:
        return request.cookies.get(self._cookie_name, "")

    @property
    def _cookie_name(self) -> str:
        """Browsers take a name that begins so from a secure server only, for all of its paths."""
        return "__Host-koord" if self.is_secure else "koord"


def _name_of(host: str) -> str:
    """Return a name without its port, and an address without brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
