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
from koord.store.feed import FeedAddress, FeedError, read_page

SECONDS: Final = 10.0
MOST_PAGES: Final = 64
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


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
    source = FeedAddress(address, "" if leader is None else leader.holder)
    try:
        async with (
            asyncio.timeout(SECONDS),
            ClientSession(timeout=ClientTimeout(total=SECONDS)) as session,
        ):
            return await _read_pages(session, source)
    except FeedError as error:
        return FeedRecords(problem=str(error))
    except (ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
        return FeedRecords(problem=f"{address} does not answer ({str(error) or 'too slow'})")


async def _read_pages(session: ClientSession, source: FeedAddress) -> FeedRecords:
    records: list[Mapping[str, Any]] = []
    after, term = 0, None
    for _ in range(MOST_PAGES):
        page = await read_page(session, source, term=term, after=after)
        if not page.lines:
            break
        records += [_DECODER.decode(line) for line in page.lines]
        term, after = page.term, page.last
    return FeedRecords(tuple(records))
