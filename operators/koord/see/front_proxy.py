"""Who asks through the aggregation layer: headers of the API server, which has looked who it is.

They count on connections alone whose client has shown a certificate of the authority that the
cluster names for this, with a name that it allows: TLS refuses all others before a header is read.
Which headers these are, the cluster says as well. Knows no answer, and not how that is read.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ssl import SSLContext, SSLError
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web

from koord.runtime.reviews import TokenHolder
from koord.see.access import FOR_EVER, Asker
from koord.see.askers import Askers

MOST_CA: Final = 256 * 1024
MOST_NAMES: Final = 64
"""Allowed names, and names of headers, of each kind."""
MOST_LENGTH: Final = 1024
"""Characters of a name of a user, a group, or a key of what else is said of her."""
MOST_GROUPS: Final = 1000
MOST_EXTRA: Final = 64
ANONYMOUS: Final = "system:anonymous"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
"""What may be the name of a header."""
_CA: Final = "requestheader-client-ca-file"
_ALLOWED: Final = "requestheader-allowed-names"
_USER: Final = "requestheader-username-headers"
_UID: Final = "requestheader-uid-headers"
_GROUP: Final = "requestheader-group-headers"
_EXTRA: Final = "requestheader-extra-headers-prefix"


class InvalidFrontProxy(Exception):  # noqa: N818 - what it says is what is wrong
    """The cluster does not say, or not so that it can be understood, who may name users."""


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """Who may name users in headers, and in which. Without ``allowed`` any name may."""

    authority: str
    """The certificates of the authority, as PEM."""
    allowed: frozenset[str]
    user: tuple[str, ...]
    group: tuple[str, ...]
    extra: tuple[str, ...] = ()
    """Prefixes."""
    uid: tuple[str, ...] = ()

    def trust_in(self, context: SSLContext) -> None:
        """Have a context ask for a certificate. Raises ``InvalidFrontProxy``."""
        try:
            context.load_verify_locations(cadata=self.authority)
        except (SSLError, ValueError) as error:
            raise InvalidFrontProxy(f"{_CA} has no certificates: {error}") from error


def read_front_proxy(data: Mapping[str, str]) -> FrontProxy:
    """Return what the ConfigMap extension-apiserver-authentication says.

    Raises ``InvalidFrontProxy``.
    """
    authority = data.get(_CA, "")
    if not authority.strip():
        raise InvalidFrontProxy(
            f"{_CA} is not set: the API server has no aggregation layer (its flag "
            "--requestheader-client-ca-file)"
        )
    if len(authority) > MOST_CA or not authority.isascii():
        raise InvalidFrontProxy(f"{_CA} is not {MOST_CA >> 10} KiB of PEM at most")
    user = _read_headers(data, _USER)
    if not user:
        raise InvalidFrontProxy(f"{_USER} names no header")
    return FrontProxy(
        authority,
        frozenset(_read_names(data, _ALLOWED)),
        user,
        _read_headers(data, _GROUP),
        _read_headers(data, _EXTRA),
        _read_headers(data, _UID),
    )


def _read_names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        names = json.loads(data.get(key) or "[]")
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or len(names) > MOST_NAMES:
        raise InvalidFrontProxy(f"{key} is no list of {MOST_NAMES} names at most")
    if not all(isinstance(name, str) and len(name) <= MOST_LENGTH for name in names):
        raise InvalidFrontProxy(f"{key} has something else than names")
    return tuple(names)


def _read_headers(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    names = _read_names(data, key)
    wrong = next((name for name in names if not _TOKEN.fullmatch(name)), None)
    if wrong is not None:
        raise InvalidFrontProxy(f"{key}: {wrong[:64]!r} is no name of a header")
    return names


@dataclass(slots=True)
class FrontProxyAccess:
    """Recognises users by what the API server says; ``find`` returns who may say so now."""

    askers: Askers
    find: Callable[[], FrontProxy | None]
    login: str = ""

    def check_host(self, request: web.Request) -> None:
        """Let any name pass: no browser has the certificate of the API server."""

    async def identify(self, request: web.Request) -> Asker:
        proxy = self.find()
        if proxy is None or not is_allowed(proxy, _certificate_of(request)):
            raise web.HTTPUnauthorized(reason="only the API server asks here, with its certificate")
        return self.askers.make(read_user(proxy, request), FOR_EVER)

    async def begin_session(
        self, request: web.Request, body: Mapping[str, Any], response: web.Response
    ) -> None:
        """Refuse: each request says who asks."""
        del request, body, response
        raise web.HTTPNotFound

    def end_session(self, request: web.Request, response: web.Response) -> None:
        """There are none."""


def _certificate_of(request: web.Request) -> Mapping[str, Any] | None:
    return None if request.transport is None else request.transport.get_extra_info("peercert")


def is_allowed(proxy: FrontProxy, certificate: Mapping[str, Any] | None) -> bool:
    """Whether who has shown this certificate, which TLS has verified, may name users."""
    if not certificate:
        return False
    if not proxy.allowed:
        return True
    parts = (part for group in certificate.get("subject", ()) for part in group)
    names = [value for key, value in parts if key == "commonName"]
    return len(names) == 1 and names[0] in proxy.allowed


def read_user(proxy: FrontProxy, request: web.Request) -> TokenHolder:
    """Return the user whom headers name. Raises ``HTTPUnauthorized`` and ``HTTPBadRequest``."""
    users = [value for value in _list_values(request, proxy.user) if value]
    if not users or users[0] == ANONYMOUS:
        raise web.HTTPUnauthorized(reason="the API server names no user")
    uids = [value for value in _list_values(request, proxy.uid) if value]
    groups = tuple(_list_values(request, proxy.group))
    extra = _read_extra(request, proxy.extra)
    count = sum(map(len, extra.values()))
    texts = [
        users[0],
        *uids[:1],
        *groups,
        *extra,
        *(v for values in extra.values() for v in values),
    ]
    if len(groups) > MOST_GROUPS or count > MOST_EXTRA or max(map(len, texts)) > MOST_LENGTH:
        raise web.HTTPBadRequest(reason="the API server says too much of a user")
    return TokenHolder(users[0], uids[0] if uids else "", groups, extra)


def _list_values(request: web.Request, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from request.headers.getall(name, ())


def _read_extra(request: web.Request, prefixes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return what else is said, by key: the API server writes keys in small letters, quoted."""
    extra: dict[str, tuple[str, ...]] = {}
    for prefix in prefixes:
        start = prefix.lower()
        for name, value in request.headers.items():
            if name.lower().startswith(start):
                key = unquote(name[len(prefix) :].lower())
                extra[key] = (*extra.get(key, ()), value)
    return extra
