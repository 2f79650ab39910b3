"""Reads the cluster and writes snapshots: what ``koord snapshot`` does.

Not imported for ``--help``.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from koord.answers.gaps import list_warnings
from koord.answers.leaders import Leader
from koord.answers.reading import Reading, Target, TargetKind
from koord.cli.cluster import read_cluster, refuse_gaps
from koord.cli.common import ExitCode, fail, say, warn
from koord.cli.connection import open_client
from koord.cli.feed_records import find_address, read_feed
from koord.cli.output import count_of
from koord.core.engine.scoring import Scoring
from koord.domains.placement import NODES, PODS
from koord.kube.errors import KubeError
from koord.replay.anonymise import CannotAnonymise, anonymise_checked
from koord.replay.archive import UnusableFile
from koord.replay.decisions import decide_all
from koord.replay.recorded import RecordedCluster
from koord.replay.snapshot_file import SnapshotFile, read_snapshot, write_snapshot
from koord.runtime.hooks import load_hooks

OWNER_ONLY: Final = 0o600
"""Rights of a file with names of all tenants."""


def take_snapshot(file: str, unit: str, feed: str, cluster: tuple[str, str, str]) -> None:
    reading, target, recorded = read_recorded(*cluster)
    refuse_gaps(reading, NODES, PODS)
    for warning in list_warnings(reading, target):
        warn(warning)
    snapshot = SnapshotFile(
        recorded,
        decide_all(reading.state, Scoring()),
        unit=unit,
        records=tuple(read_records(unit, feed, reading.leader)) if unit else (),
    )
    if unit and not any(unit in decision.names for decision in snapshot.decisions):
        warn(f"{unit} does not wait")
    write_file(file, write_snapshot(snapshot))
    objects = sum(map(len, recorded.values.values()))
    say(
        f"Wrote {file}: {count_of(objects, 'object')}, "
        f"{count_of(len(snapshot.decisions), 'unit')} that wait. Names and labels are in it: for "
        "strangers, see koord snapshot anonymise. Each list is of one moment; the lists are of "
        "several."
    )


def write_anonymised(file: str, to: str) -> None:
    try:
        anonymised = anonymise_checked(read_snapshot(Path(file)), load_hooks)
    except (UnusableFile, CannotAnonymise) as error:
        fail(str(error), ExitCode.USAGE)
    write_file(to, write_snapshot(anonymised.snapshot))
    say(f"Wrote {to}. As they were have stayed: {', '.join(anonymised.kept) or 'no texts'}.")


def read_recorded(
    namespace: str, kubeconfig: str, context: str
) -> tuple[Reading, Target, RecordedCluster]:
    """Read the cluster, and return what was read; ends the command if that is not possible."""

    async def read() -> tuple[Reading, Target, RecordedCluster]:
        records: list[RecordedCluster] = []
        async with open_client(kubeconfig, context) as (client, access):
            target = Target(TargetKind.POD, namespace or access.namespace, "")
            reading = await read_cluster(client, target, record=records.append)
        return reading, target, records[0]

    try:
        return asyncio.run(read())
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)


def read_records(unit: str, feed: str, leader: Leader | None) -> Iterator[Mapping[str, Any]]:
    """Yield what the leader has recorded of a unit; warn if that cannot be read."""
    answer = asyncio.run(read_feed(find_address(leader, feed), leader))
    if answer.problem:
        warn(f"no records of {unit} are in it: {answer.problem}")
    for record in answer.records:
        about = record.get("unit")
        if isinstance(about, dict) and unit in (about.get("names") or ()):
            yield record


def write_file(file: str, content: bytes) -> None:
    """Write a file that only its owner may read; ends the command if that is not possible."""
    path = Path(file)
    try:
        # A file that is there may be readable by others, and would stay so.
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "wb") as to:
            to.write(content)
    except OSError as error:
        fail(f"{file} cannot be written: {error}", ExitCode.USAGE)
