"""A tenant who lies in all that she may write: every answer is given, to her and to others."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cli.readings import make_condition
from tests.cluster import FakeCluster, make_cluster
from tests.fuzz.harness import Fuzzer
from tests.support.work import count_calls, grows_with

from koord.answers.edits import AddNodes, Drain, TooManyChangesError
from koord.answers.encoding import encode
from koord.answers.explain import MOST_SHAPES, PlacementState
from koord.answers.fragmentation import view_fragmentation
from koord.answers.health import MOST_OF_NAMESPACE as MOST_FINDINGS
from koord.answers.health import find_sick
from koord.answers.outcomes import view_outcomes
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import EVERYTHING, Sight
from koord.answers.remedies import RemedyKind, Verified
from koord.answers.remedy_search import verify
from koord.answers.reports import make_report
from koord.answers.room import RoomQuestion, find_room
from koord.answers.timeline import MOST_OF_NAMESPACE as MOST_HAPPENINGS
from koord.answers.timeline import make_timeline
from koord.answers.what_if import ask_what_if
from koord.answers.why import make_answer
from koord.core.audit.records import MOST_NAME, find_recorded_owner
from koord.core.defrag.shapes import GpuShape
from koord.core.model.gang_history import MAX_READ, MAX_WHY, Episode
from koord.core.model.pods import OwnerReference
from koord.core.model.text import MAX_QUOTED, MAX_TEXT
from koord.domains.gang import POD_GROUPS
from koord.domains.registry import make_translator_options
from koord.see.paging import InvalidQuery
from koord.see.route import Ask, NothingThere, Route
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot
from koord.similar_names import find_similar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.builders import PodBuilder

    from koord.answers.explanation import Explanation
    from koord.answers.remedies import Remedy
    from koord.answers.timeline import TimelineEntry

NOW = 1_790_000_000.0
HERE = Target(TargetKind.POD, "team-a", "")
ONLY_A = Sight(frozenset({"team-a"}))
EDITS = (
    {"drain": {"nodes": ["n0"]}},
    {"addNodes": {"like": "n1", "count": 2}},
    {"removeNodes": {"nodes": ["n1"]}},
)


def ask(route: Route, snapshot: Snapshot, **parts: str) -> str:
    """Return an answer as the server writes it; empty where it refuses."""
    body: dict[str, Any] = {"edits": list(EDITS)} if route.answer == "WhatIf" else {}
    body = {"shape": "2x4"} if route.answer == "Room" else body
    try:
        value = route.compute(snapshot, Ask(parts, body))
    except (InvalidQuery, NothingThere):
        return ""
    value = getattr(value, "value", value)
    return json.dumps(encode(value), ensure_ascii=False).encode().decode()


def ask_all(cluster: FakeCluster, sight: Sight = EVERYTHING) -> Iterator[tuple[str, str]]:
    """Ask every question, and why each pod and gang waits and what would help it."""
    snapshot = Snapshot(Reading(cluster.state, sight=sight), HERE, 1, NOW)
    units = [("pod", pod.key) for pod in cluster.state.pods.values()]
    units += [("podgroup", key) for key in cluster.state.gangs.keys()]  # noqa: SIM118 - no dict
    for route in ROUTES:
        if "{kind}" in route.path:
            for kind, key in units:
                namespace, _, name = key.partition("/")
                told = ask(route, snapshot, kind=kind, namespace=namespace, name=name)
                yield f"{route.answer} {kind}/{key}", told
        elif "{name}" in route.path:
            for name in ("n0", "q", "team-a", "default"):
                yield f"{route.answer} {name}", ask(route, snapshot, name=name)
        elif route.begin is None:
            yield route.answer, ask(route, snapshot)


class Liars(Fuzzer):
    """Mutants of all kinds, of which everything is asked."""

    def _play_round(self, inputs: int) -> None:
        cluster = FakeCluster().nodes(make_node("n0").gpu(8), make_node("n1").label("zone", "a"))
        for _ in range(inputs):
            reader = self._rng.choice(self._readers[:1] * 4 + self._readers)
            self.last = reader.read(cluster, self._mutator, self._rng)
        cluster.state.advance(NOW)
        for sight in (EVERYTHING, ONLY_A):
            for _ in ask_all(cluster, sight):
                pass
        for reader in self._readers:
            reader.clear(cluster)


def test_every_answer_is_given_whatever_tenants_write() -> None:
    Liars(seed=0).run(200)


# --- what one tenant's objects cost --------------------------------------------------------------


def reading_of(cluster: FakeCluster) -> Reading:
    cluster.state.advance(NOW)
    return Reading(cluster.state)


def explain_gang(cluster: FakeCluster, name: str = "evil/g") -> Explanation:
    namespace, _, gang = name.partition("/")
    return make_answer(reading_of(cluster), Target(TargetKind.POD_GROUP, namespace, gang), NOW)


def gang_of(pods: Iterable[PodBuilder], least: int, nodes: int = 4) -> FakeCluster:
    cluster = make_cluster(nodes).pod_groups(make_pod_group("evil/g", least))
    return cluster.pods(*(pod.gang("evil/g") for pod in pods))


def test_of_members_that_are_all_unlike_few_are_shown_to_every_node() -> None:
    pods = [make_pod(f"evil/g-{at}").gpu(8).requests(cpu=100 + at) for at in range(40)]
    answer = explain_gang(gang_of([*pods, make_pod("evil/g-40").gpu(8).requests(cpu=100)], 41))
    assert len(answer.offers) == MOST_SHAPES
    assert max(each.pods for each in answer.offers) == 2, "the most frequent are among them"
    assert answer.not_asked == 41 - sum(each.pods for each in answer.offers) > 0


def test_members_that_nobody_could_create_are_not_tried() -> None:
    cluster = gang_of([make_pod("evil/g-0").gpu(1)], 9_999)
    remedies = find_remedies_of(cluster)
    assert {each.verified for each in remedies if each.kind is RemedyKind.ADD_MEMBERS} == {
        Verified.NOT_TRIED
    }


def find_remedies_of(cluster: FakeCluster, name: str = "evil/g") -> tuple[Remedy, ...]:
    answer, _ = verify(reading_of(cluster), explain_gang(cluster, name), lambda: False)
    return answer.remedies or ()


def test_trials_that_change_thousands_of_objects_are_not_made() -> None:
    cluster = make_cluster(2).pods(
        *(make_pod(f"evil/p-{at}").owners("x").requests(cpu=100).running("n0") for at in range(20))
    )
    reading = reading_of(cluster)
    before = view_outcomes(cluster.state)
    with pytest.raises(TooManyChangesError):
        ask_what_if(reading, [Drain(("n0",))], most_changes=10)
    assert view_outcomes(cluster.state).waiting == before.waiting
    assert len(cluster.state.pods_on("n0")) == 20
    assert ask_what_if(reading, [Drain(("n0",))], most_changes=41).units


def test_what_waits_is_planned_once_for_the_queue_and_for_the_first_trial() -> None:
    def outcomes(cluster: FakeCluster, *, is_read: bool) -> list[tuple[str, bool, str]]:
        waiting = view_outcomes(cluster.state, is_read=is_read).waiting
        codes = [each.reason.code if each.reason else "" for each in waiting.values()]
        starts = [each.starts for each in waiting.values()]
        return list(zip((source.key for source in waiting), starts, codes, strict=True))

    cluster = make_cluster(3).pods(*(make_pod(f"p-{at}").gpu(3) for at in range(9)))
    snapshot = Snapshot(reading_of(cluster), HERE, 1, NOW)
    assert len(snapshot.waiting) == 9
    whole = outcomes(cluster, is_read=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("koord.answers.outcomes.plan_waiting", None)
        assert outcomes(cluster, is_read=True) == whole
    cluster.pods(make_pod("more").gpu(3))
    assert len(outcomes(cluster, is_read=True)) == 10


def test_looking_for_similar_names_costs_in_proportion() -> None:
    rng = random.Random(1)  # noqa: S311 - to be repeated, not to be secret
    letters = "a" * 90 + "b" * 90 + "c" * 70

    def look(count: int) -> Any:
        names = ["".join(rng.sample(letters, len(letters))) for _ in range(count)]
        return lambda: find_similar("".join(rng.sample(letters, len(letters))), names)

    assert grows_with(400, look) < 1.5
    assert count_calls(look(2000)) < 500_000


@pytest.mark.parametrize("more", [0, 500])
def test_among_hundreds_of_names_the_nearest_are_found(more: int) -> None:
    names = ["test", "training-a", *(f"job-{at:04}" for at in range(more))]
    assert find_similar("tset", names) == ["test"]
    assert find_similar("traning-a", names) == ["training-a"]


# --- remedies work when they are applied ---------------------------------------------------------


def test_nodes_that_are_added_have_the_taints_of_those_that_they_are_like() -> None:
    closed, full = make_node("a0").gpu(8).taint("dedicated"), make_node("b0").gpu(8)
    cluster = make_cluster().nodes(closed, full).pods(make_pod("runs").gpu(8).running("b0"))
    cluster.pods(make_pod("p").gpu(8))
    remedies = {each.kind: each for each in find_remedies_of_pod(cluster)}
    assert remedies[RemedyKind.ADD_NODES].change == {"nodes": 1, "like": "b0"}
    (change,) = ask_what_if(reading_of(cluster), [AddNodes("b0", 1)]).units
    assert change.after.standing is PlacementState.PLACEABLE
    assert not ask_what_if(reading_of(cluster), [AddNodes("a0", 1)]).units
    room = find_room(cluster.state, RoomQuestion(GpuShape(1, 8)))
    assert [each.like for each in room.after_nodes] == ["b0"]


def find_remedies_of_pod(cluster: FakeCluster) -> tuple[Remedy, ...]:
    reading = reading_of(cluster)
    answer = make_answer(reading, Target(TargetKind.POD, "default", "p"), NOW)
    return verify(reading, answer, lambda: False)[0].remedies or ()


def test_what_an_autoscaler_takes_off_a_node_is_on_no_new_one() -> None:
    cordoned = make_node("n0").gpu(8).unschedulable().taint("node.kubernetes.io/unschedulable")
    cluster = make_cluster().nodes(cordoned)
    cluster.pods(make_pod("p").gpu(8))
    (change,) = ask_what_if(reading_of(cluster), [AddNodes("n0", 1)]).units
    assert change.after.standing is PlacementState.PLACEABLE


def test_asking_for_less_helps_all_members() -> None:
    """Applied as it is told: no member asks for more than that."""
    sizes = [16, 12, 12, 4]
    pods = [make_pod(f"evil/g-{at}").gpu(gpus) for at, gpus in enumerate(sizes)]
    cluster = gang_of(pods, len(sizes))
    (remedy,) = (each for each in find_remedies_of(cluster) if each.kind is RemedyKind.ASK_LESS)
    assert remedy.helps
    most = int(remedy.change["to"])
    less = [make_pod(f"evil/g-{at}").gpu(min(gpus, most)) for at, gpus in enumerate(sizes)]
    assert explain_gang(gang_of(less, len(sizes))).standing is PlacementState.PLACEABLE


# --- answers of others stay as they are ----------------------------------------------------------


def test_what_waits_does_not_say_what_a_gpu_usually_takes() -> None:
    def stranded(more: int) -> Any:
        cluster = make_cluster().nodes(make_node("n0").gpu(8).cpu(64_000))
        cluster.pods(make_pod("a/runs").gpu(1).requests(cpu=8000).running("n0"))
        cluster.pods(*(make_pod(f"evil/w-{at}").gpu(1).requests(cpu=60_000) for at in range(more)))
        (model,) = view_fragmentation(cluster.state)
        return model.free, model.stranded

    assert stranded(0) == stranded(9)


def tell(cluster: FakeCluster) -> list[TimelineEntry]:
    return list(make_timeline(reading_of(cluster), HERE, ()))


def test_what_is_to_happen_in_years_is_not_told_and_no_namespace_tells_of_thousands() -> None:
    def group(name: str, *times: float) -> Any:
        made = make_pod_group(name, 1).build()
        return replace(made, history=tuple(Episode(int(at), "Preempted", "", "") for at in times))

    liars = (group(f"evil/g-{at:04}", NOW - at, NOW + 10**8) for at in range(1200))
    cluster = make_cluster().pod_groups(group("team-a/real", NOW - 7200), *liars)
    told = tell(cluster)
    assert max(each.at for each in told) <= NOW * 1000
    assert [each.happening.ref for each in told].count("team-a/real") == 1
    assert len(told) == 1 + MOST_HAPPENINGS


def test_pods_that_their_owner_keeps_from_ending_hide_no_other_finding() -> None:
    def stuck(name: str) -> Any:
        pod = make_pod(name).running("n0").build()
        return replace(pod, gone_by=NOW - 10_000, is_terminating=True)

    cluster = make_cluster(1)
    cluster.pods(*(stuck(f"evil/p-{at:03}") for at in range(250)), stuck("team-a/p"))
    found = find_sick(cluster.state, NOW)
    assert [each.subject.namespace for each in found].count("team-a") == 1
    assert len(found) == MOST_FINDINGS + 2
    assert any(each.message.startswith("150 more of its objects") for each in found)


def test_what_conditions_and_histories_say_is_cut() -> None:
    said = make_condition("Placed", "False", "R" * 5000, "\x1b[2J<b>\u202e" + "x" * 50_000)
    report = make_report(said)
    assert len(report.message) <= MAX_TEXT
    assert len(report.reason) <= MAX_QUOTED
    assert report.message.isprintable()
    episode = {
        "time": "2026-01-01T00:00:00Z",
        "what": "w" * 9000,
        "why": "y" * 9000,
        "by": "b" * 9000,
    }
    document = {
        "metadata": {"name": "g", "namespace": "evil", "uid": "u"},
        "spec": {"minMember": 1},
        "status": {"history": [episode] * 500},
    }
    wire = msgspec.json.decode(json.dumps(document), type=POD_GROUPS.wire)
    translated = POD_GROUPS.make_translator(make_translator_options()).translate(wire)
    assert len(translated.history) <= MAX_READ
    assert max(len(each.why) for each in translated.history) <= MAX_WHY


def test_names_of_owners_are_as_long_as_names_may_be() -> None:
    long = "\x1b[2J" + "x" * 50_000
    pod = make_pod("default/p").gpu(1).build()
    owned = replace(pod, owners=(OwnerReference(long, long, "v1", long, True),))
    answer = make_answer(
        reading_of(make_cluster(1).pods(owned)), Target(TargetKind.POD, "default", "p"), NOW
    )
    assert answer.owner is not None
    for text in (answer.owner.kind, answer.owner.name, answer.owner.uid):
        assert text.isprintable()
        assert len(text) <= MAX_QUOTED
    recorded = find_recorded_owner(owned)
    assert recorded is not None
    assert max(map(len, (recorded.kind, recorded.name, recorded.uid))) <= MOST_NAME
