"""Budgets on a real API server: what is used is in the status, and outlives the process."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.operators.test_quotas import Quotas

from koord.core.usage.reasons import HOUR_OF_A_GPU

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

QUEUE = "operators.koordinator.sh/queue"


def test_what_is_used_up_stays_so_over_a_restart_until_the_budget_is_raised(
    cluster: Cluster,
) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 16)
    path = f"{quotas._path}/{quotas.name('team')}"

    def allow(hours: int) -> None:
        annotations = {QUEUE: json.dumps({"maxGpuHoursPerMonth": hours})}
        cluster.box.client.patch(path, {"metadata": {"annotations": annotations}})

    allow(1)
    cluster.add_nodes(2)
    cluster.pod("a", labels=quotas.label("team"))
    cluster.expect_bound("a")
    month = f"{datetime.now(UTC):%Y-%m}"
    cluster.expect(
        lambda: quotas.status("team")["budget"]["maxGpuHours"] == 1, "the budget is in the status"
    )
    assert quotas.status("team")["budget"]["month"] == month
    cluster.operators.kill()
    used = {"month": month, "held": HOUR_OF_A_GPU, "until": 0}  # in place of an hour
    cluster.box.client.patch(f"{path}/status", {"status": {"budget": used}})
    cluster.operators.start()
    cluster.pod("b", labels=quotas.label("team"))
    cluster.expect_pod("b", "BudgetSpent")
    assert "a" in cluster.bound()
    assert quotas.status("team")["budget"]["held"] >= HOUR_OF_A_GPU
    allow(1000)
    cluster.expect_bound("b")
