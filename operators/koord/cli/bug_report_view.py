"""Collects a bug report and writes it: what ``koord bug-report`` does.

Not imported for ``--help``.
"""

import asyncio
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout

from koord.answers.leaders import Leader
from koord.cli.common import ExitCode, fail, say, warn
from koord.cli.explain_view import ask_version
from koord.cli.feed_records import SECONDS, find_address, read_feed
from koord.cli.snapshot_view import read_recorded, write_file
from koord.core.engine.scoring import Scoring
from koord.domains.registry import KINDS
from koord.kube.leader_report import LeaderReport
from koord.replay.anonymise import CannotAnonymise, anonymise_checked
from koord.replay.archive import pack, write_lines
from koord.replay.bug_report import NameRemover, strip_metrics, strip_records, strip_settings
from koord.replay.decisions import decide_all
from koord.replay.snapshot_file import DISTRIBUTION, SnapshotFile, write_snapshot
from koord.runtime.hooks import load_hooks

_MOST_BYTES: Final = 32 << 20
_NAMING: Final = {
    "open_namespaces": (),
    "owners": None,
    "last_error": "",
    "refused": (),
    "not_ready": (),
    "feed": "",
}
"""What a leader says of itself with names of others, and what stands for it."""


def write_report(file: str, feed: str, kubeconfig: str, context: str) -> None:
    reading, _, recorded = read_recorded("", kubeconfig, context)
    snapshot = SnapshotFile(recorded, decide_all(reading.state, Scoring()))
    try:
        anonymised = anonymise_checked(snapshot, load_hooks)
    except CannotAnonymise as error:
        fail(str(error), ExitCode.USAGE)
    kinds = {kind.name for kind in KINDS}
    remover = NameRemover(
        anonymised.names, frozenset(anonymised.kept) | kinds, anonymised.replace_text
    )
    versions = {
        "koord": version(DISTRIBUTION),
        "python": platform.python_version(),
        "kubernetes": ask_version(kubeconfig, context),
    }
    files = {
        "versions.json": _write(versions),
        "status.json": _write(_describe(reading.leader, remover)),
        "snapshot.ksnap": write_snapshot(anonymised.snapshot),
        **dict(_read_leader(find_address(reading.leader, feed), reading.leader, remover)),
    }
    write_file(file, pack(files))
    say(f"Wrote {file}. Nothing was uploaded. In it are:")
    for name, content in files.items():
        say(f"  {name} ({len(content)} bytes)")
    say(f"As they were have stayed: {', '.join(anonymised.kept) or 'no texts'}.")


def _describe(leader: Leader | None, remover: NameRemover) -> dict[str, Any]:
    """Return what a leader says of itself and of its settings, without names and texts."""
    if leader is None:
        return {"leader": None}
    report = leader.report
    statement = None
    if isinstance(report, LeaderReport):
        statement = strip_settings(
            msgspec.to_builtins(msgspec.structs.replace(report, **_NAMING)), remover
        )
    is_led = bool(leader.holder)
    return {"isLed": is_led, "since": leader.since, "term": leader.term, "report": statement}


def _read_leader(
    address: str, leader: Leader | None, remover: NameRemover
) -> Iterator[tuple[str, bytes]]:
    """Yield what the process of the leader serves; warn of what cannot be read."""
    answer = asyncio.run(read_feed(address, leader))
    if answer.problem:
        warn(f"no records are in it: {answer.problem}")
    else:
        yield "records.jsonl", write_lines(strip_records(answer.records, remover))
    metrics = asyncio.run(_read_metrics(address)) if address else ""
    if metrics:
        yield "metrics.txt", strip_metrics(metrics, remover).encode()
    else:
        warn("no metrics are in it: see --feed")


async def _read_metrics(address: str) -> str:
    """Return the metrics that are served at an address; empty if they cannot be read."""
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=SECONDS)) as session,
            session.get(f"http://{address}/metrics", allow_redirects=False) as answer,
        ):
            content = bytearray()
            async for chunk in answer.content.iter_chunked(1 << 16):
                content += chunk
                if len(content) > _MOST_BYTES:
                    return ""
            return content.decode(errors="replace") if answer.status == 200 else ""
    except (ClientError, OSError, TimeoutError, ValueError):
        return ""


def _write(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document))
