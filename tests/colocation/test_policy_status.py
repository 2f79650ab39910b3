"""What the status of a ColocationPolicy says: offers with their terms, and why there are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.builders import make_pod
from tests.colocation.nodes import NOW
from tests.colocation.test_publisher import CPU, Publishing
from tests.support.authors import FakeAuthor

from koord.api.colocationpolicy import ColocationPolicyStatus
from koord.controllers.colocation_policy import MOST_SHOWN, ColocationPolicyStatuses
from koord.core.colocation.plugin import ColocationPolicies
from koord.core.engine.policies import ObservedPolicy


class Statuses:
    """The status of the policy of a cluster, as it is written."""

    def __init__(self, publishing: Publishing, *, is_on: bool = True) -> None:
        self.status: dict[str, Any] = {}
        self.ready: tuple[bool, str, str] = (False, "", "")
        self.policy = ColocationPolicyStatuses(
            publishing.cluster.state,
            FakeAuthor(self._write),  # type: ignore[arg-type]
            publishing.publisher if is_on else None,
            lambda: publishing.now,
        )

    def _write(self, _: Any, fields: Any, conditions: Any) -> None:
        self.status = json.loads(json.dumps(fields))
        (ready,) = conditions
        self.ready = (ready.status, ready.reason, ready.message)


async def test_offers_are_shown_with_terms_that_add_up() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    statuses = Statuses(publishing)
    assert await statuses.policy.update("p") == 60
    assert statuses.ready == (True, "Publishing", "1 of 1 nodes offer what others leave")
    shown = ColocationPolicyStatus.model_validate_json(json.dumps(statuses.status))
    assert (shown.nodes, shown.degraded) == (1, 0)
    assert statuses.status["offered"][CPU] == "60000"
    (example,) = shown.examples or ()
    assert example.node == "n0"
    for resource in example.resources or ():
        terms = [int(term.amount) for term in resource.terms or ()]
        assert sum(terms) == int(resource.amount)


async def test_nodes_without_reports_are_counted_and_say_why() -> None:
    publishing = Publishing()
    await publishing.round(4_000)
    publishing.now += 15 * 60 + 1
    await publishing.publisher.update("n0")
    statuses = Statuses(publishing)
    await statuses.policy.update("p")
    assert statuses.status["degraded"] == 1
    assert "of 1 nobody has reported lately" in statuses.ready[2]
    assert "the report is 901 s old" in statuses.status["examples"][0]["message"]


async def test_a_rival_is_named() -> None:
    publishing = Publishing()
    await publishing.round(4_000)
    statuses = Statuses(publishing)
    assert statuses.policy.changed() == ["p"]
    publishing.rival = "koord-manager-0"
    assert statuses.policy.changed() == ["p"]
    await publishing.publisher.update("n0")
    await statuses.policy.update("p")
    assert statuses.ready[:2] == (False, "ManagedElsewhere")
    assert "koord-manager-0" in statuses.ready[2]
    # An empty map would be refused where there was one with entries.
    assert statuses.status.keys() == {"nodes", "degraded", "lastUpdateTime"}


async def test_what_keeps_a_policy_from_being_published_is_told() -> None:
    publishing = Publishing()
    off = Statuses(publishing, is_on=False)
    await off.policy.update("p")
    assert off.ready[:2] == (False, "Disabled")
    policies = publishing.cluster.state.plugin(ColocationPolicies)
    policies.upsert(ObservedPolicy("p", "uid-p", 2, 1.0, None))
    invalid = Statuses(publishing)
    await invalid.policy.update("p")
    assert invalid.ready[:2] == (False, "Invalid")
    policies.remove(policies.policies["p"])
    assert await invalid.policy.update("p") is None


async def test_a_status_is_bounded() -> None:
    publishing = Publishing(make_pod("a").running("n0"))
    await publishing.round(4_000)
    offered = publishing.publisher.offered
    for at in range(3 * MOST_SHOWN):
        offered[f"m{at}"] = offered["n0"]
    statuses = Statuses(publishing)
    await statuses.policy.update("p")
    assert statuses.status["nodes"] == 3 * MOST_SHOWN + 1
    assert len(statuses.status.get("examples", ())) <= MOST_SHOWN


@pytest.mark.parametrize("seconds", [0, 60])
async def test_the_time_of_the_status_is_told(seconds: int) -> None:
    publishing = Publishing()
    publishing.now += seconds
    statuses = Statuses(publishing)
    await statuses.policy.update("p")
    told = ColocationPolicyStatus.model_validate_json(json.dumps(statuses.status))
    assert told.last_update_time is not None
    assert told.last_update_time.timestamp() == NOW + seconds
