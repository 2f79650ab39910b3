"""The gang cache updated by changes equals one built from all objects."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod, make_pod_group
from tests.support.laws import examples

from koord.core.gang.cache import GangCache
from koord.core.gang.quorum import Ready, completed_at, count_quorum, demands
from koord.core.model.gangs import MatchPolicy, ObservedPodGroup
from koord.core.model.pods import Handling, Pod, PodPhase, RecordedPlan

A, B, C = "default/a", "default/b", "default/c"
GANGS = [A, B, C]


def test_the_oldest_member_with_a_minimum_decides_the_settings() -> None:
    book = GangCache()
    book.upsert_pod(make_pod("late").annotation_gang(A, 5).created(9).build())
    book.upsert_pod(make_pod("first").annotation_gang(A).created(1).build())
    assert book.spec(A).min_member == 5
    book.upsert_pod(make_pod("early").annotation_gang(A, 3).created(2).build())
    assert book.spec(A).min_member == 3
    book.remove_pod("uid-default-early")
    assert book.spec(A).min_member == 5


def test_pod_group_takes_precedence_over_annotations() -> None:
    book = GangCache()
    book.upsert_pod(make_pod("p").annotation_gang(A, 5).build())
    book.upsert_pod_group(make_pod_group(A, 2).build())
    assert book.spec(A).min_member == 2
    book.remove_pod("uid-default-p")
    assert book.keys() == (A,)
    book.remove_pod_group(A)
    assert book.keys() == ()


def test_annotation_gang_is_removed_with_its_last_pod() -> None:
    book = GangCache()
    book.upsert_pod(make_pod("p").annotation_gang(A, 1).build())
    book.remove_pod("uid-default-p")
    assert (book.keys(), book.spec(A), dict(book.members(A))) == ((), None, {})
    assert book.touched() == {A}
    assert book.touched() == set()


def test_members_are_identified_by_uid() -> None:
    book = GangCache()
    book.upsert_pod(make_pod("p").gang(A).terminating().build())
    book.upsert_pod(make_pod("p").uid("again").gang(A).build())
    assert book.tally(A).total == 2
    assert book.tally(A).alive == 1


def test_pod_that_changes_its_gang_leaves_the_old_one() -> None:
    book = GangCache()
    book.upsert_pod(make_pod("p").gang(A).build())
    book.upsert_pod(make_pod("p").gang(B).build())
    assert book.keys() == (B,)
    book.upsert_pod(make_pod("p").build())
    assert book.keys() == ()


def test_unchanged_pod_touches_no_gang() -> None:
    book = GangCache()
    book.upsert_pod_group(make_pod_group(A).build())
    pod = make_pod("p").gang(A)
    book.upsert_pod(pod.build())
    book.touched()
    demands(book, A)
    book.upsert_pod(pod._set(resource_version="2").build())
    assert book.touched() == set()
    assert book.members(A)["uid-default-p"].resource_version == "2"
    assert book.tally(A).plannable["uid-default-p"].resource_version == "2"
    verdict = demands(book, A)
    assert isinstance(verdict, Ready)
    assert [pod.resource_version for pod in verdict.units[0].pods] == ["2"]


def test_change_of_a_gang_touches_its_group() -> None:
    book = GangCache()
    book.upsert_pod_group(make_pod_group(A).group(A, B).build())
    book.upsert_pod_group(make_pod_group(B).group(A, B).build())
    book.upsert_pod_group(make_pod_group(C).build())
    book.touched()
    book.upsert_pod(make_pod("p").gang(A).build())
    assert book.touched() == {A, B}


def test_created_or_deleted_gang_touches_its_listers() -> None:
    book = GangCache()
    book.upsert_pod_group(make_pod_group(A).group(A, B).build())
    book.touched()
    for change in (
        lambda: book.upsert_pod(make_pod("p").gang(B).build()),
        lambda: book.upsert_pod_group(make_pod_group(B).build()),
        lambda: book.upsert_pod_group(make_pod_group(B).group(A, B).build()),
        lambda: book.remove_pod_group(B),
        lambda: book.remove_pod("uid-default-p"),
    ):
        change()
        assert book.touched() == {A, B}


@dataclass
class World:
    """Objects as an API server stores them."""

    pods: dict[str, Pod] = field(default_factory=dict)
    pod_groups: dict[str, ObservedPodGroup] = field(default_factory=dict)


@st.composite
def draw_pod(draw: st.DrawFn) -> Pod:
    number = draw(st.integers(0, 5))
    builder = make_pod(f"p-{number}").created(float(number % 3))
    if gang := draw(st.sampled_from([None, *GANGS])):
        if draw(st.booleans()):
            builder.gang(gang)
        else:
            group = tuple(draw(st.sets(st.sampled_from(GANGS))) | {gang})
            builder.annotation_gang(gang, draw(st.sampled_from([None, 1, 2])), group=group)
    builder.phase(draw(st.sampled_from(list(PodPhase))))
    builder.handling(draw(st.sampled_from(list(Handling))))
    return builder._set(
        node=draw(st.sampled_from(["", "n1"])),
        is_terminating=draw(st.booleans()),
        recorded=draw(st.sampled_from([None, RecordedPlan("n1", "plan", A, 2)])),
    ).build()


@st.composite
def draw_pod_group(draw: st.DrawFn) -> ObservedPodGroup:
    key = draw(st.sampled_from(GANGS))
    group = draw(st.sets(st.sampled_from(GANGS))) | {key}
    policy = draw(st.sampled_from(list(MatchPolicy)))
    return make_pod_group(key, draw(st.integers(0, 3))).group(*group).match_policy(policy).build()


CHANGES = st.lists(
    st.one_of(
        draw_pod(),
        draw_pod_group(),
        st.integers(0, 5).map(lambda number: f"uid-default-p-{number}"),
        st.sampled_from(GANGS),
    ),
    max_size=25,
)


def apply(world: World, book: GangCache, change: Pod | ObservedPodGroup | str) -> None:
    """Change the world and the cache; a name stands for a deletion."""
    if isinstance(change, Pod):
        world.pods[change.uid] = change
        book.upsert_pod(change)
    elif isinstance(change, ObservedPodGroup):
        world.pod_groups[change.key] = change
        book.upsert_pod_group(change)
    elif change in GANGS:
        world.pod_groups.pop(change, None)
        book.remove_pod_group(change)
    else:
        world.pods.pop(change, None)
        book.remove_pod(change)


def rebuild(world: World) -> GangCache:
    """Build a cache from the world, in another order than that of its changes."""
    book = GangCache()
    for uid in sorted(world.pods, reverse=True):
        book.upsert_pod(world.pods[uid])
    for key in sorted(world.pod_groups):
        book.upsert_pod_group(world.pod_groups[key])
    return book


def observe(book: GangCache) -> dict[str, object]:
    return {
        key: (
            book.spec(key),
            book.pod_group(key),
            dict(book.members(key)),
            book.tally(key),
            book.group(key),
            demands(book, key),
            count_quorum(book, key),
            completed_at(book, key),
        )
        for key in GANGS
    }


def test_answers_are_cached_until_a_change() -> None:
    book = GangCache()
    book.upsert_pod_group(make_pod_group(A).group(A, B).build())
    book.upsert_pod_group(make_pod_group(B).group(A, B).build())
    assert demands(book, A) is demands(book, B)
    before = demands(book, A)
    book.upsert_pod(make_pod("p").gang(C).build())
    assert demands(book, A) is before
    book.upsert_pod(make_pod("p").gang(B).build())
    assert demands(book, A) != before


@settings(max_examples=examples(30))
@given(CHANGES)
def test_updated_cache_equals_a_rebuilt_one(changes: list[Pod | ObservedPodGroup | str]) -> None:
    world, book = World(), GangCache()
    for change in changes:
        before = observe(book)
        apply(world, book, change)
        after = observe(book)
        assert after == observe(rebuild(world))
        changed = {key for key in GANGS if before[key] != after[key]}
        assert changed <= book.touched(), "nothing changes unnoticed"


@settings(max_examples=examples(30))
@given(CHANGES)
def test_deleted_objects_leave_nothing_behind(changes: list[Pod | ObservedPodGroup | str]) -> None:
    world, book = World(), GangCache()
    for change in changes:
        apply(world, book, change)
        book.touched()
        observe(book)
    for uid in world.pods:
        book.remove_pod(uid)
    for key in world.pod_groups:
        book.remove_pod_group(key)
    book.touched()
    book.take_departed()
    observe(book)
    leftovers = [name for name, value in vars(book).items() if value]
    assert leftovers == []
