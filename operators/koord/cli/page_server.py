"""Reads the cluster again and again and serves answers: what ``koord page`` does.

Not imported for ``--help``.
"""

import asyncio
import gc
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from koord.answers.envelope import AnswerGap
from koord.answers.happenings import Subject
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.story import Story
from koord.cli.cluster import read_cluster
from koord.cli.common import ExitCode, fail, say
from koord.cli.connection import open_client
from koord.cli.history_view import HistoryRequest, list_records, read_story
from koord.cli.manifests import read_defaults
from koord.kube.errors import KubeError
from koord.see.access import KeyAccess
from koord.see.app import BASE, Server
from koord.see.page_files import ROOT
from koord.see.snapshots import OnDemand, Snapshots
from koord.store.usage_reading import UsageReader

IDLE_SECONDS: Final = 8 * 3600.0
_LOOK_SECONDS: Final = 60.0
_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Where to listen, and what else to read: a feed, a store, and who is a user."""

    port: int = 0
    feed: str = ""
    store: Path | None = None
    user_label: str = ""


def serve(request: PageRequest, kubeconfig: str, context: str) -> None:
    """Serve until Ctrl-C, or until nobody has asked for hours."""
    feed, port = request.feed, request.port
    if request.store is not None and not request.store.is_file():
        fail(f"--store {request.store}: there is no such file", ExitCode.USAGE)

    async def read() -> tuple[Reading, Target]:
        async with open_client(kubeconfig, context) as (client, access):
            target = Target(TargetKind.POD, access.namespace, "")
            return await read_cluster(client, target, for_all=True), target

    def tell(subject: Subject) -> tuple[Story, tuple[AnswerGap, ...]]:
        about = HistoryRequest(subject.kind, subject.namespace, subject.name, feed=feed)
        return read_story(about, kubeconfig, context)

    on_demand = OnDemand(
        tell,
        lambda: list_records(feed, kubeconfig, context),
        lambda namespace: read_defaults(namespace, time.time(), kubeconfig, context),
        read_usage=None if request.store is None else UsageReader(request.store).read,
        user_label=request.user_label,
    )
    gc.enable()  # unlike in commands that end soon
    try:
        asyncio.run(_serve(Snapshots(lambda: asyncio.run(read()), on_demand=on_demand), port))
    except KeyboardInterrupt:
        say("")
    except OSError as error:
        fail(f"cannot listen on {_HOST}:{port}: {error.strerror}", ExitCode.UNREADABLE)
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)


async def _serve(snapshots: Snapshots, port: int) -> None:
    access = KeyAccess(secrets.token_urlsafe(16))
    server = Server(snapshots, access)
    runner = web.AppRunner(server.make_app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, _HOST, port)
        await site.start()
        access.port = int(runner.addresses[0][1])
        address = f"http://{_HOST}:{access.port}"
        say(f"page: {address}{ROOT}/#k={access.key}")
        say(f"answers: {address}{BASE}/overview")
        say(f"what can be asked: {address}/openapi.json")
        say(f"key: {access.key}")
        say(f'for example: curl -H "Authorization: Bearer {access.key}" {address}{BASE}/queue')
        reading = asyncio.create_task(snapshots.run())
        try:
            while time.monotonic() < server.asked_at + IDLE_SECONDS:
                done, _ = await asyncio.wait({reading}, timeout=_LOOK_SECONDS)
                for task in done:
                    task.result()
        finally:
            reading.cancel()
    finally:
        snapshots.close()
        await runner.cleanup()
