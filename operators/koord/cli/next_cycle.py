"""Has the leader record its next cycle, and writes the file: ``koord snapshot --next``.

Not imported for ``--help``. No credentials are sent, as for the feed.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from koord.answers.leaders import Leader
from koord.cli.common import ExitCode, fail, say
from koord.cli.connection import open_client
from koord.cli.feed_records import find_address
from koord.cli.leases import read_leader
from koord.cli.snapshot_view import write_file
from koord.kube.errors import KubeError
from koord.replay.archive import MOST_PACKED

LOOK_SECONDS: Final = 0.5
"""Between two looks whether the cycle was planned."""
WAIT_SECONDS: Final = 600.0
"""So long the leader keeps an order: it plans all that waits again within half of it."""
_TIMEOUT_SECONDS: Final = 60.0
"""Of one request: the file of a large cluster takes seconds."""
_NOT_YET: Final = 204
_ORDERED: Final = 202


class CycleError(Exception):
    """There is no snapshot; the text says why."""


def fetch_cycle(file: str, unit: str, feed: str, cluster: tuple[str, str]) -> None:
    """Write the snapshot of the next cycle; ends the command if there is none."""
    try:
        content = asyncio.run(_fetch(unit, feed, cluster))
    except (CycleError, KubeError) as error:
        fail(str(error), ExitCode.UNREADABLE)
    write_file(file, content)
    say(
        f"Wrote {file}: what the leader has planned with, and what it has decided. Names and "
        "labels are in it: for strangers, see koord snapshot anonymise."
    )


async def _fetch(unit: str, feed: str, cluster: tuple[str, str]) -> bytes:
    async with open_client(*cluster) as (client, _):
        leader = await read_leader(client)
    address = find_address(leader, feed)
    if not address:
        raise CycleError("forward a port to the pod of the leader, and give it as --feed")
    try:
        # The server ends each connection, and what orders must not be sent twice.
        connector = TCPConnector(force_close=True)
        timeout = ClientTimeout(total=_TIMEOUT_SECONDS)
        async with ClientSession(connector=connector, timeout=timeout) as session:
            return await order_and_wait(session, address, unit, leader)
    except (ClientError, OSError, TimeoutError) as error:
        problem = str(error) or "too slow"
        raise CycleError(f"{address} does not answer ({problem})") from error


async def order_and_wait(
    session: ClientSession, address: str, unit: str, leader: Leader | None
) -> bytes:
    """Return the file of the next cycle that plans a unit.

    Raises ``CycleError`` and ``ClientError``.
    """
    url = f"http://{address}/feed/snapshot"
    status, text = await _ask(session, "POST", url, leader, {"unit": unit})
    if status != _ORDERED:
        raise CycleError(f"{url} answers {status}: {_first_line(text)}")
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        status, content = await _ask(session, "GET", url, leader)
        if status == 200:
            return content
        if status != _NOT_YET:
            raise CycleError(f"{url} answers {status}: {_first_line(content)}")
        await asyncio.sleep(LOOK_SECONDS)
    raise CycleError(f"{unit or 'nothing'} was planned in {WAIT_SECONDS:.0f} seconds")


async def _ask(
    session: ClientSession,
    method: str,
    url: str,
    leader: Leader | None,
    params: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    async with session.request(method, url, params=params, allow_redirects=False) as answer:
        content = bytearray()
        async for part in answer.content.iter_chunked(1 << 16):
            content += part
            if len(content) > MOST_PACKED:
                raise CycleError(f"{url} sends more than {MOST_PACKED >> 20} MiB")
        holder = answer.headers.get("Koord-Leader", "")
    if answer.status < 400 and leader is not None and holder != leader.holder:
        raise CycleError(f"{url} is not that of the leader {leader.holder}")
    return answer.status, bytes(content)


def _first_line(content: bytes) -> str:
    return content[:200].decode(errors="replace").partition("\n")[0]
