"""Who is held, what was changed, and which victims are gone: each is recorded once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.controllers.scene import Scene
from tests.objects import upsert_pod_group, upsert_quota

from koord.controllers.decision_log import DecisionLog
from koord.core.audit.ring import Ring
from koord.core.audit.victims import MOST_VICTIMS
from koord.core.eviction.model import EvictionPlan, Outcome
from koord.core.model.changes import Changes
from koord.runtime.audit import encode_record

GATE = "example.com/approval"


class Recorded:
    """A state with a queue, of which each look is recorded; the clock is set by hand."""

    def __init__(self) -> None:
        self.scene, self.now = Scene(), 1000.0
        queue = self.scene.operator.queue
        clock = lambda: self.now  # noqa: E731 - read by both clocks
        self.audit = DecisionLog(Ring(4096, 1 << 24), self.scene.state, queue, clock, clock)
        self.audit.begin_term(1, "leader")

    def look(self, *gangs: str, singles: tuple[str, ...] = ()) -> None:
        changes = Changes(gangs=set(gangs), singles=set(singles))
        self.scene.operator.queue.absorb(changes, self.scene.state)
        self.audit.note(changes)

    def documents(self, *kinds: str) -> list[dict]:
        records = self.audit.ring.read(0, 4096)
        found = [json.loads(encode_record(record)) for record in records]
        return [each for each in found if each["kind"] in kinds]

    def kinds(self) -> list[str]:
        return [str(record.kind) for record in self.audit.ring.read(0, 4096)]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def put_gang(recorded: Recorded, least: int = 2, pods: int = 2, **changes: object) -> None:
    state = recorded.scene.state
    upsert_pod_group(state, make_pod_group("default/train", least).build())
    for at in range(pods):
        pod = make_pod(f"train-{at}").gang("default/train").gpu(1).build()
        state.upsert_pod(replace(pod, **changes))


def test_a_gang_with_the_gate_of_somebody_else_is_held_until_that_is_gone(
    recorded: Recorded,
) -> None:
    state = recorded.scene.state
    pod = make_pod("p").gpu(1).build()
    state.upsert_pod(make_pod("p").gpu(1).foreign_gates(GATE).build())
    recorded.look(singles=("uid-default-p",))
    recorded.look(singles=("uid-default-p",))
    state.upsert_pod(pod)
    recorded.look(singles=("uid-default-p",))
    assert recorded.kinds() == ["Term", "Held", "Released"]
    (held,) = recorded.documents("Held")
    assert (held["code"], held["unit"]["key"]) == ("WaitingForForeignGate", "default/p")
    assert GATE in held["text"]


def test_a_lower_minimum_another_priority_and_another_quota_are_changes(
    recorded: Recorded,
) -> None:
    state = recorded.scene.state
    for name in ("q", "r"):
        upsert_quota(state, make_quota(name, max={GPU: 8}))
    state.refresh()
    put_gang(recorded, quota="q")
    recorded.look("default/train")
    recorded.look("default/train")
    assert recorded.documents("Changed") == []
    put_gang(recorded, least=1, quota="r", priority=7)
    recorded.look("default/train")
    recorded.look("default/train")
    (changed,) = recorded.documents("Changed")
    assert changed["changes"] == [
        {"field": "minMember", "from": "2", "to": "1"},
        {"field": "priority", "from": "0", "to": "7"},
        {"field": "quota", "from": "q", "to": "r"},
    ]
    assert (changed["quota"], changed["unit"]["key"]) == (None, "default/train")


def test_the_settings_of_a_quota_are_changed_and_not_what_it_uses(recorded: Recorded) -> None:
    state = recorded.scene.state
    quota = make_quota("q", min={GPU: 4}, max={GPU: 8})
    upsert_quota(state, quota)
    recorded.look()
    upsert_quota(state, make_quota("new", max={GPU: 8}))
    recorded.look()
    assert recorded.documents("Changed") == []
    upsert_quota(state, replace(quota, max={GPU: 16}, min={}))
    recorded.look()
    recorded.look()
    (changed,) = recorded.documents("Changed")
    assert changed["quota"] == "q"
    assert changed["changes"] == [
        {"field": f"min.{GPU}", "from": "4", "to": ""},
        {"field": f"max.{GPU}", "from": "8", "to": "16"},
    ]
    assert "unit" not in changed


def test_each_victim_is_told_of_when_it_is_gone(recorded: Recorded) -> None:
    state = recorded.scene.state
    state.upsert_node(make_node("n").gpu(2).build())
    victims = [make_pod(f"low-{at}").gpu(1).running("n").build() for at in range(2)]
    for pod in (*victims, make_pod("high").gpu(2).build()):
        state.upsert_pod(pod)
    recorded.look(singles=("uid-default-high",))
    plan = EvictionPlan("preemption", "plan", tuple(victims), beneficiary="uid-default-high")
    recorded.audit.eviction(plan, None, None)
    recorded.audit.eviction(plan, victims, None)
    for at, seconds in ((1, 20.0), (0, 5.0)):
        recorded.now += seconds
        recorded.look()
        state.remove_pod(victims[at].uid)
        recorded.look()
        recorded.look()
    recorded.audit.eviction(plan, None, Outcome.BOUND)
    gone = recorded.documents("VictimGone")
    assert [(each["pod"], each["left"], each["tookMs"]) for each in gone] == [
        ("default/low-1", 1, 20_000),
        ("default/low-0", 0, 25_000),
    ]
    assert {each["unit"]["key"] for each in gone} == {"default/high"}
    assert {each["policy"] for each in gone} == {"preemption"}


def test_victims_are_followed_within_bounds(recorded: Recorded) -> None:
    recorded.scene.state.upsert_pod(make_pod("high").gpu(2).build())
    recorded.look(singles=("uid-default-high",))
    pods = tuple(make_pod(f"low-{at}").gpu(1).build() for at in range(MOST_VICTIMS + 10))
    plan = EvictionPlan("preemption", "plan", pods, beneficiary="uid-default-high")
    recorded.audit.eviction(plan, pods, None)
    recorded.look()
    assert len(recorded.documents("VictimGone")) == MOST_VICTIMS
