"""One ProvisioningRequest for each gang that lacks nodes, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.builders import make_pod
from tests.cluster import make_cluster

from koord.controllers.scale_up_requests import (
    KEPT_SECONDS,
    LOOK_SECONDS,
    MOST_WRITES,
    RequestChannel,
)
from koord.core.autoscaler.demand import NodeDemand
from koord.core.autoscaler.requests import (
    AGAIN_SECONDS,
    MOST_SHAPES,
    NodeRequest,
    RequestCondition,
    may_be_requested,
    unit_of,
)
from koord.kube.errors import Forbidden
from koord.kube.provisioning_requests import ProvisioningRequests, make_template

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from koord.kube.objects import ObjectRef

PODS = tuple(make_pod(f"g-{at}").gang("default/g").gpu(8).build() for at in range(8))
DEMAND = NodeDemand("default/g", PODS, 8)


@dataclass
class Play:
    """The API as far as requests go, and the channel; events are recorded by their reasons."""

    there: list[NodeRequest] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    refuses: bool = False
    most: int = 2000
    deleted: int = 0
    now: float = 10_000.0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.channel = RequestChannel(self, make_cluster().state, self)  # type: ignore[arg-type]

    async def list(self, namespaces: Collection[str]) -> list[NodeRequest]:
        if self.refuses:
            raise Forbidden(403, "Forbidden", "no")
        of_these = [each for each in self.there if each.namespace in namespaces]
        first = [each for each in self.there if each not in of_these]
        return [*first[: self.most], *of_these]

    async def create(self, demand: NodeDemand, attempt: int, owner: Mapping[str, str]) -> None:
        assert owner["uid"]
        namespace, digest = unit_of(demand)
        name = f"koord-{digest}-{attempt}"
        self.there.append(NodeRequest(namespace, name, name, digest, attempt))

    async def delete(self, request: NodeRequest) -> None:
        self.there.remove(request)
        self.deleted += 1

    def record(self, ref: ObjectRef, kind: str, *, action: str, reason: str, note: str) -> None:
        self.events.append((reason, note))

    async def after(self, seconds: float, *demands: NodeDemand) -> list[int]:
        """Return the attempts that there are after so long."""
        self.now += seconds
        await self.channel.tell(demands, self.now)
        return [request.attempt for request in self.there]

    def says(self, kind: str, reason: str, message: str = "", *, is_true: bool = True) -> None:
        (request,) = self.there
        condition = RequestCondition(is_true, reason, message, self.now)
        self.there[0] = replace(request, conditions={**request.conditions, kind: condition})


async def test_one_request_for_a_gang_also_after_a_restart() -> None:
    play = Play()
    await play.after(0)
    assert await play.after(LOOK_SECONDS, DEMAND) == [1]
    assert play.channel.knows(DEMAND)
    assert play.events == [("NodesRequested", "new nodes were asked for by a ProvisioningRequest")]
    play.start()
    assert await play.after(0) == [1], "who lacks nodes is not known yet"
    assert play.channel.knows(DEMAND)
    assert await play.after(LOOK_SECONDS, DEMAND) == [1]


async def test_it_goes_a_minute_after_its_reason() -> None:
    """X-33: no request for a gang that waits for its quota."""
    play = Play()
    await play.after(0)
    await play.after(LOOK_SECONDS, DEMAND)
    assert await play.after(LOOK_SECONDS) == [1]
    assert await play.after(LOOK_SECONDS, DEMAND) == [1]
    assert await play.after(LOOK_SECONDS) == [1]
    assert await play.after(KEPT_SECONDS) == []
    assert not play.channel.is_busy or await play.after(LOOK_SECONDS) == []


@pytest.mark.parametrize("kind", ["Failed", "BookingExpired", "CapacityRevoked"])
async def test_the_next_one_follows_after_a_pause(kind: str) -> None:
    """X-34."""
    play = Play()
    await play.after(0)
    await play.after(LOOK_SECONDS, DEMAND)
    play.says(kind, "Why", "no luck")
    assert await play.after(LOOK_SECONDS, DEMAND) == [1]
    assert play.events[-1] == ("NodesRefused", "Why: no luck")
    assert await play.after(AGAIN_SECONDS - LOOK_SECONDS - 1, DEMAND) == [1]
    assert await play.after(LOOK_SECONDS, replace(DEMAND, is_served=True)) == [1]
    assert await play.after(LOOK_SECONDS, DEMAND) == [2]


async def test_nodes_that_were_not_found_are_told_and_looked_for_further() -> None:
    play = Play()
    await play.after(0)
    await play.after(LOOK_SECONDS, DEMAND)
    play.says("Provisioned", "CapacityIsNotFound", "quota of the cloud", is_true=False)
    assert await play.after(AGAIN_SECONDS, DEMAND) == [1]
    assert play.events[-1] == ("NodesRefused", "CapacityIsNotFound: quota of the cloud")


async def test_a_label_of_another_namespace_counts_for_no_gang() -> None:
    play = Play([NodeRequest("evil", "x", "x", unit_of(DEMAND)[1], 1)])
    await play.after(0)
    await play.after(LOOK_SECONDS, DEMAND)
    assert [request.namespace for request in play.there] == ["evil", "default"]


async def test_thousands_of_forged_requests_cost_few_writes_at_a_time() -> None:
    """Whoever may create requests may label them as ours: they go, and others' stay."""
    play = Play([NodeRequest("evil", f"x{at}", f"x{at}", "x", 1) for at in range(3000)])
    await play.after(0, DEMAND)
    await play.after(LOOK_SECONDS, DEMAND)
    mine = play.there[-1]
    assert mine.namespace == "default"
    for _ in range(2):
        play.deleted = 0
        await play.after(KEPT_SECONDS, DEMAND)
        assert play.deleted == MOST_WRITES
    assert play.there.count(mine) == 1
    # One of another namespace does not wait for all of these.
    await play.after(LOOK_SECONDS)
    await play.after(KEPT_SECONDS)
    assert mine not in play.there


async def test_forged_requests_hide_no_request_from_who_asks_for_it() -> None:
    server = ForgedRequests()
    api = ProvisioningRequests(server)  # type: ignore[arg-type]
    assert {request.namespace for request in await api.list()} == {"evil"}
    assert {request.namespace for request in await api.list({"team"})} == {"evil", "team"}
    assert len(server.paths) == 3, "one list more, of the namespace that is asked for"


@dataclass
class ForgedRequests:
    """A server whose first list is full of one namespace."""

    paths: list[str] = field(default_factory=list)

    async def get(self, path: str, of: type[Any]) -> Any:
        self.paths.append(path)
        namespace, following = ("team", "") if "/namespaces/team/" in path else ("evil", "more")
        meta = {"name": "koord-1-1", "namespace": namespace, "uid": namespace}
        body = {"metadata": {"continue": following}, "items": [{"metadata": meta}]}
        return msgspec.convert(body, of)


async def test_a_server_that_refuses_costs_one_try_a_minute() -> None:
    play = Play(refuses=True)
    assert await play.after(0, DEMAND) == []
    play.refuses = False
    assert await play.after(LOOK_SECONDS, DEMAND) == []
    await play.after(60, DEMAND)
    assert await play.after(LOOK_SECONDS, DEMAND) == [1]


def test_what_one_request_cannot_say() -> None:
    assert may_be_requested(DEMAND)
    kinds = tuple(make_pod(f"p{at}").requests(cpu=at + 1).build() for at in range(MOST_SHAPES + 1))
    assert not may_be_requested(NodeDemand("u", kinds, 1))
    assert may_be_requested(NodeDemand("u", kinds[1:], 1))
    assert not may_be_requested(NodeDemand("u", (*PODS, make_pod("other/p").build()), 1))


def test_a_template_has_what_decides_where_a_pod_fits_and_no_secrets() -> None:
    secret = {"name": "TOKEN", "value": "hush"}
    pod: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "default", "labels": {"a": "b"}},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}, "env": [secret]}
            ],
            "nodeSelector": {"pool": "a"},
            "schedulingGates": [{"name": "operators.koordinator.sh/placement"}],
            "volumes": [{"name": "v"}],
            "serviceAccountName": "boss",
        },
    }
    template = make_template(pod, "t-0")
    assert template["template"] == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "nodeSelector": {"pool": "a"},
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
        },
    }
