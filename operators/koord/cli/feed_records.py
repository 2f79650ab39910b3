"""Reads the records of decisions from the feed of the leader.

No credentials are ever sent there: whoever may write the Lease could name any address. So what the
Lease names is only used if it is on this machine, and every answer has to name the leader. Whoever
forwards the port gives the address.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout

from koord.answers.leaders import Leader

SECONDS: Final = 10.0
MOST_PAGES: Final = 64
MOST_BYTES: Final = 32 << 20
"""Of one page."""
_LIMIT: Final = 2000


@dataclass(frozen=True, slots=True)
class FeedRecords:
    """Records in their order, or why there are none (a phrase)."""

    records: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""


def find_address(leader: Leader | None, given: str) -> str:
    """Return where to read; empty if nobody on this machine serves it, and nothing was given."""
    if given:
        return given.removeprefix("http://").rstrip("/")
    report = None if leader is None else leader.report
    address = "" if report is None else report.feed
    try:
        is_here = ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return ""
    return address if is_here else ""


async def read_feed(address: str, leader: Leader | None) -> FeedRecords:
    """Return all records that a leader serves at an address."""
    if not address:
        return FeedRecords(problem="no feed of the leader was read")
    holder = "" if leader is None else leader.holder
    try:
        async with (
            asyncio.timeout(SECONDS),
            ClientSession(timeout=ClientTimeout(total=SECONDS)) as session,
        ):
            return await _read_pages(session, f"http://{address}/feed", holder)
    except (ClientError, OSError, TimeoutError, ValueError) as error:
        return FeedRecords(problem=f"{address} does not answer ({str(error) or 'too slow'})")


async def _read_pages(session: ClientSession, url: str, holder: str) -> FeedRecords:
    records: list[Mapping[str, Any]] = []
    after, term = 0, ""
    for _ in range(MOST_PAGES):
        params = {"limit": str(_LIMIT), "after": str(after), **({"term": term} if term else {})}
        async with session.get(url, params=params, allow_redirects=False) as answer:
            body = await answer.content.read(MOST_BYTES)
            while not answer.content.at_eof() and len(body) < MOST_BYTES:
                body += await answer.content.read(MOST_BYTES - len(body))
            who = answer.headers.get("Koord-Leader", "")
        if answer.status != 200:
            return FeedRecords(problem=f"{url} answers {answer.status}: {_first_line(body)}")
        if holder and who != holder:
            return FeedRecords(problem=f"{url} is not that of the leader {holder}")
        page = _decode(body)
        if not page:
            break
        records += page
        after, term = int(page[-1]["seq"]), str(int(page[-1]["term"]))
    return FeedRecords(tuple(records))


def _decode(body: bytes) -> list[Mapping[str, Any]]:
    try:
        lines = [msgspec.json.decode(line) for line in body.splitlines()]
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"what it sends is no JSON: {error}") from error
    if not all(isinstance(line, dict) and _is_numbered(line) for line in lines):
        raise ValueError("what it sends are no records")
    return lines


def _is_numbered(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("seq"), int) and isinstance(record.get("term"), int)


def _first_line(body: bytes) -> str:
    return body[:200].decode(errors="replace").partition("\n")[0]
