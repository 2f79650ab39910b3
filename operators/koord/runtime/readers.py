"""Who may read or change what is served: this machine, or whoever has the right by its token.

Knows no page. An area is the first part of the paths that are asked for together.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias

from aiohttp import web

METRICS: Final = "/metrics"
FEED: Final = "/feed"
CYCLES: Final = "/feed/snapshot"
AUDIENCES: Final[Mapping[str, str]] = {FEED: "koord-feed"}
"""By area: tokens for this audience are good there, and nowhere else."""
DIAGNOSIS: Final = "/apis/v1"
FLAGS: Final = "/debug/flags"

LOCAL_ONLY: Final = "only for this machine: use kubectl port-forward\n"
_REFUSALS: Final[Mapping[int, str]] = {
    401: "send the token of a ServiceAccount: Authorization: Bearer …\n",
    403: "needs a ClusterRole with the verb {verb} on this nonResourceURL\n",
    503: "the API server cannot be asked whether you may {verb} this\n",
}


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who asks: the status of HTTP, 200 if he may, and his name if he has given one."""

    status: int
    name: str = ""


Authorize: TypeAlias = Callable[[str, str, str], Awaitable[Reader]]
"""Called with the header ``Authorization``, the path, and the verb: a method in small letters."""
Authorizers: TypeAlias = Mapping[str, Authorize]
"""By area; where one is missing, nobody is asked who reads it."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Decides about each request."""

    authorize: Authorizers

    async def refuse(self, request: web.Request, area: str) -> web.Response | None:
        """Return the answer to somebody who may not read an area; None if he may."""
        authorize = self.authorize.get(area)
        if authorize is None:
            return None
        reader = await _ask(authorize, request)
        return None if reader.status == 200 else _refusal_of(reader, request)

    async def identify(self, request: web.Request, area: str) -> str | web.Response:
        """Return who asks for what names all tenants; the answer to whoever may not.

        This machine may, without a token; others only where it is known who may.
        """
        if is_local(request.remote):
            return f"a client at {request.remote}"
        authorize = self.authorize.get(area)
        if authorize is None:
            return web.Response(status=403, text=LOCAL_ONLY)
        reader = await _ask(authorize, request)
        return reader.name if reader.status == 200 else _refusal_of(reader, request)


def _ask(authorize: Authorize, request: web.Request) -> Awaitable[Reader]:
    header = request.headers.get("Authorization", "")
    return authorize(header, request.path, request.method.lower())


def _refusal_of(reader: Reader, request: web.Request) -> web.Response:
    text = _REFUSALS[reader.status].format(verb=request.method.lower())
    return web.Response(status=reader.status, text=text)


def is_local(remote: str | None) -> bool:
    """Whether a client is on this machine."""
    if remote is None:
        return False
    address = ip_address(remote)
    # An IPv4 client of a socket that listens on [::].
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
