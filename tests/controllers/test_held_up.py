"""Writes that the API server keeps failing hold up only their own pods."""

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.controllers.scene import Scene
from tests.objects import upsert_pod_group

from koord.controllers import commit, placement
from koord.controllers.commit import CommitFailure
from koord.controllers.writes_in_flight import Flight, WritesInFlight
from koord.core.engine.queue import unit_of
from koord.core.model.plan import Assignment, Placement
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import BindFailed
from koord.kube.outcomes import Done, Outcome, Oversized, PodGone, Refused, Unknown

G = "default/g"
FAILING = Unknown(500, 'Internal error occurred: failed calling webhook "x"')


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "UNKNOWN_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(commit, "RETRY_SLOT_SECONDS", 0.01)
    monkeypatch.setattr(placement, "MOST_PODS_IN_FLIGHT", 2)
    monkeypatch.setattr(placement, "MOST_PODS_PER_CYCLE", 1)


def make_scene(*held_up: str) -> Scene:
    scene = Scene()
    scene.state.upsert_node(make_node("n").gpu(8).build())
    scene.writer.answers |= dict.fromkeys(held_up, FAILING)
    return scene


def gang_of(count: int) -> list[str]:
    return [f"g-{at}" for at in range(count)]


async def test_held_up_pods_do_not_count_as_in_flight() -> None:
    scene = make_scene("bad-0", "bad-1", "bad-2")
    scene.add(*(make_pod(f"bad-{at}").gpu(1).created(at).build() for at in range(3)))
    async with scene.running():
        scene.add(make_pod("good").gpu(1).created(9).build())
        assert await scene.eventually(lambda: "good" in scene.writer.bound)
        assert scene.operator.flights.pods == 0
        held_up = [f"uid-default-bad-{at}" for at in range(3)]
        assert scene.state.assumed == dict.fromkeys(held_up, "n"), "they may be bound yet"
        assert [scene.reason(f"bad-{at}") for at in range(3)] == ["BindFailed"] * 3
        scene.writer.answers.clear()
        assert await scene.eventually(lambda: len(scene.writer.bound) == 4)
        await scene.settle()
        assert scene.operator.flights.pods == 0
        assert scene.reason("bad-0") == ""


async def test_one_member_holds_up_a_gang_larger_than_the_limit() -> None:
    """The other members are not in flight either, and report the same write."""
    scene = make_scene("g-1")
    upsert_pod_group(scene.state, make_pod_group(G, 5).build())
    scene.add(*(make_pod(name).gang(G).gpu(1).build() for name in gang_of(5)))
    async with scene.running():
        assert await scene.eventually(lambda: scene.reason("g-0") == "BindFailed")
        scene.add(make_pod("other").gpu(1).build())
        assert await scene.eventually(lambda: "other" in scene.writer.bound)
        assert set(scene.writer.bound) == {"other"}, "nobody is bound before all are released"
        assert G in scene.noted
        reason = scene.operator.reason_for(scene.state.pods["uid-default-g-0"])
        assert (reason.pod, reason.status) == ("default/g-1", 500)  # type: ignore[union-attr]
        scene.writer.answers["g-1"] = Done()
        assert await scene.eventually(lambda: set(gang_of(5)) <= set(scene.writer.bound))


async def test_held_up_pods_keep_their_resources_until_deleted() -> None:
    scene = make_scene("bad")
    scene.add(make_pod("bad").gpu(8).build())
    async with scene.running():
        assert await scene.eventually(lambda: scene.reason("bad") == "BindFailed")
        scene.add(make_pod("other").gpu(8).build())
        await scene.settle()
        assert scene.reason("other") == "InsufficientNodes"
        scene.writer.answers["bad"] = PodGone()
        scene.remove("bad")
        assert await scene.eventually(lambda: "other" in scene.writer.bound)
        assert scene.operator.flights.pods == 0


@pytest.mark.parametrize("handling", [Handling.BIND, Handling.RELEASE_AND_BIND])
async def test_room_is_free_once_it_shows_that_a_write_without_outcome_had_no_effect(
    monkeypatch: pytest.MonkeyPatch, handling: Handling
) -> None:
    monkeypatch.setattr(commit, "REPEAT_SECONDS", 0.1)
    monkeypatch.setattr(commit, "SETTLE_SECONDS", 0.1)
    scene = make_scene("bad")
    scene.add(make_pod("bad").gpu(8).handling(handling).build())
    async with scene.running():
        assert await scene.eventually(lambda: scene.reason("bad") == "BindFailed")
        scene.add(make_pod("other").gpu(8).build())
        assert await scene.eventually(lambda: "other" in scene.writer.bound)
        assert "uid-default-bad" not in scene.state.assumed
        assert scene.operator.flights.pods == 0


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Refused(409, "request is too large", is_too_large=True), "ObjectTooLarge"),
        (Oversized(262_145, 900), "AnnotationsTooLarge"),
    ],
)
async def test_a_pod_that_is_too_large_to_be_written_keeps_no_room(
    answer: Outcome, code: str
) -> None:
    scene = make_scene()
    scene.writer.answers["bad"] = answer
    scene.add(make_pod("bad").gpu(8).build())
    async with scene.running():
        assert await scene.eventually(lambda: scene.writer.writes["bad"] == 1)
        scene.add(make_pod("other").gpu(8).build())
        assert await scene.eventually(lambda: "other" in scene.writer.bound)
        reason = scene.operator.failures["uid-default-bad"]
        assert reason.code == code
        assert reason.text()
        assert reason.advice()


async def test_repeated_writes_are_rate_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten repeated at a time there would be more than 60 writes."""
    monkeypatch.setattr(commit, "RETRY_SLOT_SECONDS", 0.5)
    monkeypatch.setattr(commit, "UNKNOWN_PAUSE_SECONDS", 0.0)
    names = [f"bad-{at}" for at in range(8)]
    scene = make_scene(*names)
    scene.add(*(make_pod(name).gpu(1).build() for name in names))
    async with scene.running():
        assert await scene.eventually(lambda: scene.writer.writes.total() >= 12)
        await scene.settle()
        assert scene.writer.writes.total() <= 8 + 8
        scene.writer.answers.clear()
        assert await scene.eventually(lambda: len(scene.writer.bound) == 8)


def test_placement_held_up_twice_is_discounted_once() -> None:
    """As when the release succeeds and then the binding is held up."""
    told: list[int] = []
    flights = WritesInFlight(lambda _, reason: told.append(reason.status), Scene().operator.turns)
    stuck, fine = (begin(flights, make_pod(name).build()) for name in ("stuck", "fine"))
    member = stuck.placement.assignments[0]
    for status in (500, 504):
        stuck.note_unknown(member, CommitFailure(status, "failed"))
        assert flights.held_up_by(member.pod.uid) == BindFailed("default/stuck", status, "failed")
        stuck.note_known(member)
        assert flights.held_up_by(member.pod.uid) is None
        assert flights.pods == 1
    stuck.end()
    fine.end()
    assert flights.pods == 0
    assert told == [500, 504]


def begin(flights: WritesInFlight, pod: Pod) -> Flight:
    return flights.begin(unit_of(pod), Placement(pod.uid, "plan", "", (Assignment(pod, "n"),)))
