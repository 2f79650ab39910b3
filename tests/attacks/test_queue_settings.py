"""The owner of a quota changes the settings of its queue to absurd values all the time.

Others start as soon as before; the quota says what is wrong, and its last valid settings stay.
"""

from __future__ import annotations

import json
import threading
import time
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.operators.test_quotas import Quotas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

PREFIX = "operators.koordinator.sh/"
QUEUE = f"{PREFIX}queue"
VALID: dict[str, Any] = {"maxRunning": 1}
ABSURD: list[Any] = [
    {"maxRunning": -1},
    {"maxRunning": 10**400},
    {"maxRunning": [[[[]]]]},
    {"protectAfter": "-5m"},
    {"protectAfter": "9" * 5000 + "h"},
    {"policy": "Backfill" * 1000},
    {"userWeights": {f"user-{at}": -at for at in range(3000)}},
    {"reserveDepth": 1e308},
    {"maxWait": "1h", "maxWaitPriority": 2**80},
    {f"key-{at}": at for at in range(3000)},
    "{" * 20_000,
    "null",
    "\u202e\u0000".encode("unicode_escape").decode(),
]
ALSO_VALID: list[Any] = [
    VALID | {"policy": "Strict", "protectAfter": "0s", "reserveDepth": 16},
    VALID | {"policy": "Backfill", "maxIdleShare": 100, "userFairness": "Decayed"},
    VALID | {"policy": "BestEffort"},
]
LIES: list[dict[str, str]] = [
    {f"{PREFIX}max-run-time": "-1h", f"{PREFIX}queue-hold": "perhaps"},
    {f"{PREFIX}expected-run-time": "NaN", f"{PREFIX}backfill": "Evictable"},
    {f"{PREFIX}run-class": "x" * 50_000, f"{PREFIX}user": "root"},
    {f"{PREFIX}max-run-time": "9" * 300 + "h", f"{PREFIX}backfill": "Never"},
]
PODS = 12
SLOWER_SECONDS = 2.0


class Tenant:
    """Who changes what is his: the settings of his quota, and what a gang that waits says."""

    def __init__(self, cluster: Cluster, quota: str, group: str) -> None:
        self._client = cluster.box.client
        self._group = f"{cluster.groups_path}/{group}"
        self._quota = f"{cluster.groups_path.replace('podgroups', 'elasticquotas')}/{quota}"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.changes = 0

    def set(self, settings: Any) -> None:
        text = settings if isinstance(settings, str) else json.dumps(settings)
        self._client.patch(self._quota, {"metadata": {"annotations": {QUEUE: text}}})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        lies = cycle(LIES)
        for settings in cycle([*ABSURD, *ALSO_VALID]):
            if self._is_over.is_set():
                return
            self.set(settings)
            self._client.patch(self._group, {"metadata": {"annotations": next(lies)}})
            self.changes += 1


@pytest.fixture
def quotas(cluster: Cluster) -> Iterator[Quotas]:
    made = Quotas(cluster)
    for name in ("theirs", "ours"):
        made.create(name, 0, 64)
    yield made
    for name in ("theirs", "ours"):
        made.delete_by_force(name)


def time_to_bind(cluster: Cluster, quotas: Quotas, prefix: str) -> list[float]:
    """Create pods one after the other; return how long each waited, in order of length."""
    waits = []
    for at in range(PODS):
        name = f"{prefix}-{at}"
        began = time.monotonic()
        cluster.pod(name, gpus=1, labels=quotas.label("ours"))
        cluster.expect(lambda name=name: name in cluster.bound(), f"{name} is bound")
        waits.append(time.monotonic() - began)
    return sorted(waits)


def test_absurd_settings_that_change_all_the_time_cost_others_nothing(
    cluster: Cluster, quotas: Quotas
) -> None:
    cluster.add_nodes(4)
    tenant = Tenant(cluster, quotas.name("theirs"), "second")
    tenant.set(VALID)
    label = quotas.label("theirs")
    cluster.expect(
        lambda: quotas.status("theirs").get("observedGeneration") is not None, "it is seen"
    )
    cluster.gang("first", 2, labels=label, gpus=1)
    cluster.expect_bound("first-0", "first-1")
    cluster.gang("second", 2, labels=label, gpus=1)
    cluster.expect_group("second", "MaxRunning")
    before = time_to_bind(cluster, quotas, "before")
    with tenant:
        during = time_to_bind(cluster, quotas, "during")
    assert tenant.changes >= len(ABSURD)
    assert during[-1] <= before[-1] + SLOWER_SECONDS
    assert "second-0" not in cluster.bound(), "the last valid limit has stayed"

    for settings, path, value in (
        ({"maxRunning": -1}, "maxRunning", "-1"),
        ({"protectAfter": "-5m"}, "protectAfter", "-5m"),
        ({"policy": "Magic"}, "policy", "Magic"),
    ):
        tenant.set(settings)
        cluster.expect(
            lambda path=path, value=value: (
                path in (message := cluster.condition(quotas.get("theirs"), "ConfigInvalid")[2])
                and value in message
            ),
            f"the quota names {path} and {value}",
        )
    assert "second-0" not in cluster.bound()
    tenant.set({"maxRunning": 2})
    cluster.box.client.patch(
        f"{cluster.groups_path}/second",
        {"metadata": {"annotations": dict.fromkeys({key for lie in LIES for key in lie})}},
    )
    cluster.expect_bound("second-0", "second-1")
