"""Keeps records of decisions in a file, and removes some: ``koord audit record`` and ``forget``.

Not imported for ``--help``.
"""

import asyncio
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from koord.answers.audit import to_ms
from koord.cli.common import ExitCode, fail, say, warn
from koord.cli.connection import open_client
from koord.cli.feed_records import find_address
from koord.cli.leases import read_leader
from koord.core.model.text import plural
from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.store.errors import StoreError
from koord.store.feed import FeedAddress, FeedError, FeedFollower
from koord.store.forgetting import forget_namespace, forget_user
from koord.store.keeper import RecordStore
from koord.store.retention import Keep

_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """What to keep: for ``keep`` seconds, in at most so many bytes."""

    store: Path
    keep: float
    keep_bytes: int
    feed: str


def follow(request: RecordRequest, kubeconfig: str, context: str) -> None:
    keep = Keep(int(request.keep * 1000), request.keep_bytes)
    try:
        with RecordStore(request.store, "koord audit record", keep) as store:
            asyncio.run(_follow(request, store, kubeconfig, context))
    except StoreError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except KeyboardInterrupt:
        say("")


async def _follow(
    request: RecordRequest, store: RecordStore, kubeconfig: str, context: str
) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with open_client(kubeconfig, context) as (client, _):
            await record_decisions(request, store, client)
    except asyncio.CancelledError:
        say("ended", err=True)
    except ExceptionGroup as group:
        raise group.exceptions[0] from group


async def record_decisions(request: RecordRequest, store: RecordStore, client: Client) -> None:
    """Follow the feed of whoever leads, until it is cancelled."""

    async def find() -> FeedAddress:
        leader = await read_leader(client)
        address = find_address(leader, request.feed)
        if not address:
            raise FeedError(
                "no feed of the leader can be read: set audit.feed, and give --feed where "
                "kubectl port-forward leads to the pod that leads (koord status)"
            )
        return FeedAddress(address, "" if leader is None else leader.holder)

    follower = FeedFollower(store, find)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follower.run())
        tasks.create_task(_report(follower))


async def _report(follower: FeedFollower[RecordStore]) -> NoReturn:
    """Say when something does not work, and when it works again; each once."""
    reported = ""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        problem = follower.store.health.problem or follower.problem
        if problem == reported:
            continue
        reported = problem
        position = follower.position
        if problem:
            warn(f"not recording: {problem}")
        else:
            number = "the beginning" if position is None else f"record {position.seq}"
            say(f"recording, from {number} on", err=True)
        sys.stderr.flush()


def remove(path: Path, namespace: str, before: str, user: str) -> None:
    until = (to_ms(before) or 0) if before else int(time.time() * 1000)
    try:
        forgotten = forget_user(path, user) if user else forget_namespace(path, namespace, until)
    except StoreError as error:
        fail(str(error), ExitCode.UNREADABLE)
    verb = "has lost a name in" if user else "has lost"
    say(
        f"{path} {verb} {plural(forgotten.records, 'record')} and "
        f"{plural(forgotten.segments, 'segment')}"
    )
