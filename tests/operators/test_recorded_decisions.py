"""What the leader decides is kept in a file, and is told from it when its objects are gone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.operators.test_everyday import ask

from koord.cli.audit_record import RecordRequest, record_decisions
from koord.cli.connection import open_client
from koord.core.usage.segments import Window
from koord.store.keeper import RecordStore
from koord.store.reading import StoreReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.operators.conftest import Cluster

ALWAYS = Window(0, 1 << 52)


async def record_until(cluster: Cluster, path: Path, is_enough: Callable[[], bool]) -> None:
    """Run ``koord audit record`` in this process until the file has what is waited for."""
    request = RecordRequest(path, 0.0, 0, "")
    with RecordStore(path, "test", batch_seconds=0.1) as store:
        async with open_client(str(cluster.box.kubeconfig), "") as (client, _):
            task = asyncio.create_task(record_decisions(request, store, client))
            while not is_enough():  # noqa: ASYNC110 - the file changes, nobody tells
                await asyncio.sleep(0.2)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def test_decisions_are_kept_and_analysed(cluster: Cluster, tmp_path: Path) -> None:
    path, where = tmp_path / "see.db", cluster.namespace
    cluster.add_nodes(1)
    cluster.gang("g", 2)
    cluster.expect_pod("g-0", "InsufficientNodes")
    cluster.add_nodes(1)
    cluster.expect(lambda: cluster.running("g") == 2, "both run")

    def kinds() -> set[str]:
        rows = StoreReader(path).records(ALWAYS, where).rows if path.exists() else ()
        return {str(each["kind"]) for each in rows}

    asyncio.run(record_until(cluster, path, lambda: {"Attempt", "Running"} <= kinds()))
    for name in ("g-0", "g-1"):
        cluster.delete_pod(name)
    report = ask(cluster, "audit", "analyse", "--store", str(path), "--namespace", where)
    (wait,) = report["waits"]["longest"]
    assert (wait["unit"], wait["pods"], wait["isWaiting"]) == (f"{where}/g", 2, False)
    assert "Room" in {phase["phase"] for phase in report["phases"]}
    assert (report["retries"]["placed"], report["writes"]["binds"]) == (1, 2)
    story = ask(cluster, "history", "pod/g-1", "-n", where, "--store", str(path))
    happened = [item["what"] for item in story["items"] if item["source"] == "Audit"]
    assert {"InsufficientNodes", "Placed", "Bound", "Running"} <= set(happened)
