"""What would help besides new nodes and numbers: time, constraints, moves, another quota."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota, select_pods
from tests.cli.readings import NOW, make_reading
from tests.cli.test_remedies import gang, too_large
from tests.objects import upsert_quota, upsert_topology
from tests.support.laws import examples

from koord.answers import remedy_room
from koord.answers.encoding import encode
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import Sight
from koord.answers.remedies import RemedyKind, Verified, encode_remedies
from koord.answers.remedy_search import find_remedies, verify
from koord.answers.why import make_answer
from koord.core.model.pods import OwnerReference, Pod
from koord.core.model.topology_constraint import (
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.queue.run_time import QueueHints
from koord.core.topology.cache import Topology
from koord.core.topology.layers import NODE_LAYER, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from koord.answers.remedies import Remedy

OWNER = OwnerReference("rs", "ReplicaSet", "apps/v1", "uid-rs", is_controller=True)
HOUR = 3600


def seek(
    reading: Reading, key: str = "t/g", is_over: Callable[[], bool] = lambda: False
) -> list[Remedy]:
    answer = make_answer(reading, Target(TargetKind.POD_GROUP, *key.split("/")), NOW)
    reason = next(iter(answer.reasons), None)
    return list(find_remedies(reading, answer.target, (reason, answer.closed), is_over))


def of_kind(remedies: Sequence[Remedy], kind: RemedyKind) -> Remedy:
    (remedy,) = (remedy for remedy in remedies if remedy.kind is kind)
    return remedy


def running(name: str, node: str, gpus: int = 8, ends: float | None = None) -> Pod:
    """Make a pod that runs, and is killed at ``ends``."""
    pod = make_pod(name).gpu(gpus).released(node, "p").running(node).build()
    pod = replace(pod, started=NOW - HOUR, owners=(OWNER,))
    if ends is None:
        return pod
    return replace(pod, extensions=(("queue", QueueHints(deadline=int(ends - NOW) + HOUR)),))


def filled(*ends: float | None) -> list[Any]:
    """Make a node of eight GPUs for each end, full."""
    nodes = [make_node(f"n{at}").gpu(8).build() for at in range(len(ends))]
    pods = [running(f"x/run-{at}", f"n{at}", ends=end) for at, end in enumerate(ends)]
    return [*nodes, *pods]


def at_now(*objects: Any) -> Reading:
    reading = make_reading(*objects)
    reading.state.advance(NOW)
    return reading


def test_as_few_ends_as_are_enough_are_waited_for() -> None:
    ends = [NOW + 3 * HOUR, None, NOW + HOUR, NOW + 2 * HOUR]
    remedy = of_kind(seek(at_now(*filled(*ends), *gang("t/g", 2, 2, 8))), RemedyKind.WAIT_FOR)
    assert remedy.verified is Verified.YES
    assert (remedy.change["units"], remedy.change["count"]) == (["x/run-2", "x/run-3"], 2)
    assert remedy.sentence.startswith("Wait until x/run-2, x/run-3 have ended, expected by ")
    assert str(remedy.by) == "Time"


def test_without_a_known_end_nothing_is_said_about_time() -> None:
    for ends in ([None, None], [NOW + HOUR, None]):
        remedies = seek(at_now(*filled(*ends), *gang("t/g", 2, 2, 8)))
        assert RemedyKind.WAIT_FOR not in {remedy.kind for remedy in remedies}


def test_ends_of_what_does_not_use_what_is_lacking_are_no_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So thousands of such pods do not keep it from being tried; thousands that do use it do."""
    others = [make_pod(f"t/web-{at}").requests(cpu=0).running("n0").build() for at in range(9)]
    reading = at_now(*filled(NOW + HOUR, NOW + HOUR), *others, *gang("t/g", 2, 2, 8))
    monkeypatch.setattr(remedy_room, "MOST_SOURCES", 4)
    assert of_kind(seek(reading), RemedyKind.WAIT_FOR).verified is Verified.YES
    monkeypatch.setattr(remedy_room, "MOST_SOURCES", 1)
    assert of_kind(seek(reading), RemedyKind.WAIT_FOR).verified is Verified.NOT_TRIED


def in_blocks(free: Sequence[int]) -> Reading:
    """Make a gang of two that has to share a block, and blocks with so many free nodes."""
    objects: list[Any] = []
    for block, count in enumerate(free):
        objects += [
            make_node(f"b{block}-{at}").gpu(8).label("block", f"b{block}").build()
            for at in range(count)
        ]
    constraint = TopologyConstraint((LayerConstraint("Block", GatherStrategy.MUST),))
    members = gang("t/g", 2, 2, 8)
    members[0] = make_pod_group("t/g", 2).topology(constraint).build()
    reading = at_now(*objects, *members)
    layers = (Layer("Block", "", ("block",)), Layer(NODE_LAYER, "Block"))
    upsert_topology(reading.state, Topology("default", layers))
    return reading


def test_a_gang_that_need_not_share_a_block_starts() -> None:
    remedy = of_kind(seek(in_blocks([1, 1])), RemedyKind.RELAX)
    assert remedy.verified is Verified.YES
    assert remedy.change == {"constraint": "topology", "layers": ["Block"]}
    assert remedy.text() == (
        "Drop the constraint that its members share one Block: then it would start."
    )


def test_a_constraint_that_is_not_the_cause_is_told_as_tried_in_vain() -> None:
    remedies = seek(in_blocks([1]))
    remedy = of_kind(remedies, RemedyKind.RELAX)
    assert remedy.verified is Verified.NO
    assert remedy.text().endswith(": tried, and it would still wait.")
    assert [each.helps for each in remedies] == sorted(
        (each.helps for each in remedies), reverse=True
    )


@pytest.mark.parametrize("name", ["spread", "podAntiAffinity", "podAffinity", "nodeAffinity"])
def test_each_constraint_of_pods_is_tried_by_itself(name: str) -> None:
    near = select_pods("t", app="g")
    pod = make_pod("t/g-0").gang("t/g").gpu(1).labels(app="g")
    other = make_pod("t/there").labels(app="g").running("n0").created(1)
    match name:
        case "spread":
            pod.spread(near, key="host")
        case "podAntiAffinity":
            pod.apart(near, key="host")
        case "podAffinity":
            pod.near(select_pods("t", app="nobody"), key="host")
        case _:
            pod.select("disk", "ssd")
    nodes = [make_node("n0").gpu(8).label("host", "n0").build()]
    if name == "spread":
        nodes.append(make_node("n1").gpu(0).label("host", "n1").build())
    reading = at_now(*nodes, other.build(), make_pod_group("t/g", 1).build(), pod.build())
    remedy = of_kind(seek(reading), RemedyKind.RELAX)
    assert (remedy.change["constraint"], remedy.verified) == (name, Verified.YES)


def test_moves_are_told_where_enough_is_free_but_not_together() -> None:
    nodes = [make_node(f"n{at}").gpu(8).build() for at in range(2)]
    pods = [running(f"x/run-{at}", f"n{at}", gpus=4) for at in range(2)]
    remedy = of_kind(seek(at_now(*nodes, *pods, *gang("t/g", 1, 1, 8))), RemedyKind.DEFRAGMENT)
    assert remedy.verified is Verified.YES
    assert remedy.change["moves"] == 1
    (step,) = remedy.change["steps"]
    assert {step["from"], step["to"]} == {"n0", "n1"}
    assert remedy.affects == (step["pod"],)


def test_moves_are_no_candidate_where_too_little_is_free() -> None:
    remedies = seek(at_now(*filled(None, None), *gang("t/g", 1, 1, 8)))
    assert RemedyKind.DEFRAGMENT not in {remedy.kind for remedy in remedies}


def in_quotas(room_of_other: int, **sight: Any) -> Reading:
    nodes = [make_node(f"n{at}").gpu(8).build() for at in range(4)]
    members = [
        replace(each, quota="q") if isinstance(each, Pod) else each for each in gang("t/g", 2, 2, 8)
    ]
    reading = replace(at_now(*nodes, *members), sight=Sight(**sight))
    for name, most in (("q", 8), ("r", room_of_other), ("not-ours", 64)):
        namespace = "else" if name == "not-ours" else "t"
        quota = make_quota(name, namespace, min={GPU: 0}, max={GPU: most}, shared_with=())
        upsert_quota(reading.state, quota)
    return reading


def test_another_quota_of_the_namespace_that_has_room() -> None:
    remedy = of_kind(seek(in_quotas(16)), RemedyKind.USE_OTHER_QUOTA)
    assert (remedy.change, remedy.verified) == ({"from": "q", "to": "r"}, Verified.YES)
    assert of_kind(seek(in_quotas(8)), RemedyKind.USE_OTHER_QUOTA).verified is Verified.NO


def test_other_quotas_are_named_to_none_who_may_not_list_them() -> None:
    remedies = seek(in_quotas(16, namespaces=frozenset({"t"}), quotas=False))
    assert RemedyKind.USE_OTHER_QUOTA not in {remedy.kind for remedy in remedies}


def test_whom_it_waits_for_is_named_to_none_who_may_not_list_it() -> None:
    reading = at_now(*filled(NOW + HOUR), *gang("t/g", 1, 1, 8))
    reading = replace(reading, sight=Sight(frozenset({"t"})))
    (item,) = (
        item for item in encode_remedies(tuple(seek(reading)))["items"] if item["kind"] == "WaitFor"
    )
    assert item["change"]["units"] == [None]
    assert "run-0" not in str(item)
    assert "a gang in another namespace has ended" in item["then"]


def test_what_there_was_no_time_for_is_told_and_a_gap() -> None:
    reading = too_large()
    target = Target(TargetKind.POD_GROUP, "team-a", "too-large")
    answer, gaps = verify(reading, make_answer(reading, target, NOW), lambda: True)
    assert [str(gap.because) for gap in gaps] == ["TooExpensive"]
    assert answer.remedies
    for remedy in answer.remedies:
        assert remedy.verified is Verified.NOT_TRIED
        assert "would start" not in remedy.text()


@pytest.mark.parametrize(
    ("ahead", "seen"), [((), "Yes"), ((8,), "Yes"), ((16,), "YesInOrder"), ((16,) * 65, "Yes")]
)
def test_what_waits_before_it_is_planned_too(ahead: tuple[int, ...], seen: str) -> None:
    """One more node is enough, unless another unit takes it; behind very many it is tried alone."""
    first = (make_pod(f"t/first-{at}").gpu(gpus).priority(5) for at, gpus in enumerate(ahead))
    reading = at_now(*filled(None), *(pod.build() for pod in first), *gang("t/g", 1, 1, 8))
    remedy = of_kind(seek(reading), RemedyKind.ADD_NODES)
    assert (dict(remedy.change), str(remedy.verified)) == ({"nodes": 1, "like": "n0"}, seen)
    assert ("also after all" in remedy.text()) == (seen == "YesInOrder")


@settings(max_examples=examples(20), deadline=None)
@given(
    ends=st.lists(st.one_of(st.none(), st.integers(1, 100)), max_size=5),
    pods=st.integers(1, 4),
    budget=st.integers(0, 60),
)
def test_nothing_is_left_behind_and_only_what_started_is_said_to_start(
    ends: list[int | None], pods: int, budget: int
) -> None:
    times = [None if end is None else NOW + 60 * end for end in ends]
    reading = at_now(*filled(*times), *gang("t/g", pods, pods, 8))
    target = Target(TargetKind.POD_GROUP, "t", "g")
    before = encode(make_answer(reading, target, NOW))
    asked = 0

    def is_over() -> bool:
        nonlocal asked
        asked += 1
        return asked > budget

    for remedy in seek(reading, is_over=is_over):
        assert ("then it would start" in remedy.text()) == (remedy.verified is Verified.YES)
        if remedy.kind is RemedyKind.WAIT_FOR and remedy.helps:
            known = sorted(time for time in times if time is not None)
            assert remedy.change["count"] == pods <= len(known)
    assert encode(make_answer(reading, target, NOW)) == before
