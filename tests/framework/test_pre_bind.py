"""PreBind: a toy that records on a switch, another object, which port a pod has."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import make_cluster, make_unit
from tests.framework.object_store import ObjectStore
from tests.support.laws import examples

from koord.controllers.commit import Commit, commit
from koord.core.engine.plugin import Plugin
from koord.core.model.plan import ObjectWrite
from koord.kube.errors import Forbidden
from koord.kube.object_writer import make_patch
from koord.kube.outcomes import Done, ObjectChanged, PodGone, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from koord.core.model.plan import Assignment, Placement, Unit
    from koord.kube.outcomes import Outcome


@dataclass
class Switches(Plugin):
    """Gives each pod the port of its name. ``ports``: what the switch was seen to have."""

    ports: dict[str, str] = field(default_factory=dict)
    name = "switches"

    def pre_bind(self, assignment: Assignment) -> Iterable[ObjectWrite]:
        pod = assignment.pod
        at = f"/spec/ports/{pod.name}"
        yield ObjectWrite("/switch", {at: assignment.node}, {at: self.ports.get(pod.name)})
        if "shared" in pod.profile.labels:
            yield ObjectWrite("/switch", {"/spec/group": "on"})


class Binder:
    """Releases and binds as told: ``answers`` by pod name. ``seen``: the switch at each step."""

    def __init__(self, store: ObjectStore, answers: dict[str, Outcome] | None = None) -> None:
        self.objects, self.answers, self.store = store.writer, answers or {}, store
        self.seen: list[Any] = []
        self.crash_at = -1

    async def release(self, member: Assignment, _: Placement, **__: float) -> Outcome:
        return await self.bind(member, _)

    async def bind(self, member: Assignment, _: Placement, **__: float) -> Outcome:
        if len(self.seen) == self.crash_at:
            raise RuntimeError("crash")
        self.seen.append(deepcopy(self.store.objects["/switch"]))
        return self.answers.get(member.pod.name, Done())

    read_release = read_bind = bind


class Alone:
    """Nobody waits, and nothing is counted."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None

    async def in_turn(self, _: Assignment, bind: Any) -> Outcome:
        return await bind()


def planned(
    plugin: Switches, count: int = 2, required: int | None = None, **labels: str
) -> tuple[Unit, Placement]:
    cluster = make_cluster(1, more_plugins=[plugin])
    pods = [make_pod(f"p{at}").labels(**labels).requests(cpu=100) for at in range(count)]
    unit = make_unit("u", pods, required)
    (placement,) = cluster.plan(unit).placements
    return unit, replace(placement, writes=cluster.state.writes_before(placement))


def carry_out(binder: Binder, unit: Unit, placement: Placement) -> Commit:
    return asyncio.run(commit(binder, unit, placement, Alone(), Alone()))  # type: ignore[arg-type]


def test_objects_are_written_before_any_pod_is_bound() -> None:
    store = ObjectStore(switch={})
    binder = Binder(store)
    outcome = carry_out(binder, *planned(Switches()))
    assert len(outcome.bound) == 2
    assert binder.seen == [{"spec": {"ports": {"p0": "n0", "p1": "n0"}}}] * 4, "release and bind"


@pytest.mark.parametrize(("required", "bound"), [(2, []), (1, ["p0"])])
def test_what_was_written_for_a_pod_that_is_not_bound_is_taken_back(
    required: int, bound: list[str]
) -> None:
    store = ObjectStore(switch={"spec": {"ports": {"other": "n7"}}})
    binder = Binder(store, {"p1": PodGone()})
    outcome = carry_out(binder, *planned(Switches(), required=required))
    assert outcome.bound == {f"uid-default-{name}" for name in bound}
    ports = {"other": "n7", **dict.fromkeys(bound, "n0")}
    assert store.objects["/switch"] == {"spec": {"ports": ports}}


def test_refused_object_stops_the_unit_before_anything_is_released() -> None:
    store = ObjectStore(switch={"spec": {"ports": {"p1": "somebody"}}})
    binder = Binder(store)
    outcome = carry_out(binder, *planned(Switches()))
    assert (outcome.bound, binder.seen) == (set(), [])
    assert outcome.outdated == {"uid-default-p1"}
    assert store.objects["/switch"] == {"spec": {"ports": {"p1": "somebody"}}}


def test_surplus_whose_object_is_refused_keeps_nobody_from_starting() -> None:
    store = ObjectStore(switch={"spec": {"ports": {"p1": "somebody"}}})
    outcome = carry_out(Binder(store), *planned(Switches(), required=1))
    assert outcome.bound == {"uid-default-p0"}


def test_what_members_share_stays_for_those_that_are_bound() -> None:
    store = ObjectStore(switch={})
    carry_out(Binder(store, {"p1": PodGone()}), *planned(Switches(), required=1, shared="yes"))
    assert store.objects["/switch"] == {"spec": {"ports": {"p0": "n0"}, "group": "on"}}
    store = ObjectStore(switch={})
    gone: dict[str, Outcome] = {"p0": PodGone(), "p1": PodGone()}
    carry_out(Binder(store, gone), *planned(Switches(), shared="yes"))
    assert store.objects["/switch"] == {"spec": {"ports": {}}}


@pytest.mark.parametrize("crash_at", [0, 1, 3, 4])
def test_next_leader_finds_what_was_written_and_repeats_no_write(crash_at: int) -> None:
    store = ObjectStore(switch={})
    binder = Binder(store)
    binder.crash_at = crash_at
    if crash_at < 4:
        with pytest.raises(BaseExceptionGroup):
            carry_out(binder, *planned(Switches()))
    else:
        carry_out(binder, *planned(Switches()))
    written = store.patches
    seen = Switches(ports=dict(store.objects["/switch"]["spec"]["ports"]))
    outcome = carry_out(Binder(store), *planned(seen))
    assert len(outcome.bound) == 2
    assert (store.patches, written) == (2, 2)


def test_answer_that_is_lost_is_read_from_the_object() -> None:
    store = ObjectStore(switch={})
    store.is_answered = False
    outcome = carry_out(Binder(store), *planned(Switches(), count=1))
    assert (len(outcome.bound), store.patches) == (1, 1)


def test_missing_right_is_a_failure_with_the_answer_of_the_server() -> None:
    store = ObjectStore(switch={})
    store.failures = [None, Forbidden(403, "Forbidden", "no")]
    outcome = carry_out(Binder(store), *planned(Switches(), count=1))
    assert outcome.failures["uid-default-p0"].status == 403
    assert outcome.left_over == []


def test_write_that_cannot_be_taken_back_is_told() -> None:
    store = ObjectStore(switch={})
    binder = Binder(store, {"p0": Refused(403, "no")})
    store.failures = [None, None, None, Forbidden(403, "Forbidden", "no")]
    outcome = carry_out(binder, *planned(Switches(), count=1))
    assert [write.path for write in outcome.left_over] == ["/switch"]


def test_foreign_change_is_not_overwritten_when_it_is_taken_back() -> None:
    store = ObjectStore(switch={})
    change = ObjectWrite("/switch", {"/spec/ports/p0": "n0"})
    assert asyncio.run(store.writer.write(change)) == Done()
    store.objects["/switch"]["spec"]["ports"]["p0"] = "elsewhere"
    assert asyncio.run(store.writer.write(change.undone)) == ObjectChanged("/switch")
    assert asyncio.run(store.writer.write(ObjectWrite("/gone", {}))) == ObjectChanged("/gone")


KEYS = st.sampled_from(["a", "b/c", "d~e"])
VALUES = st.one_of(st.integers(0, 3), st.lists(st.integers(0, 2), max_size=2))
DOCUMENTS = st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES), max_size=3)


def look_up(document: Any, first: str, second: str) -> Any:
    return document.get(first, {}).get(second)


@settings(max_examples=examples(200), deadline=None)
@given(DOCUMENTS, st.dictionaries(st.tuples(KEYS, KEYS), st.none() | VALUES, max_size=4))
def test_undone_write_leaves_every_field_as_it_was(
    document: dict[str, Any], fields: dict[tuple[str, str], Any]
) -> None:
    def point(first: str, second: str) -> str:
        escaped = (part.replace("~", "~0").replace("/", "~1") for part in (first, second))
        return "/" + "/".join(escaped)

    before = {point(*at): look_up(document, *at) for at in fields}
    store = ObjectStore(x=deepcopy(document))
    change = ObjectWrite("/x", {point(*at): value for at, value in fields.items()}, before)
    assert asyncio.run(store.writer.write(change)) == Done()
    assert all(look_up(store.objects["/x"], *at) == value for at, value in fields.items())
    assert asyncio.run(store.writer.write(change.undone)) == Done()
    after = store.objects["/x"]
    assert {
        first: inner for first, inner in after.items() if inner or first in document
    } == document


def test_patch_tests_what_it_replaces() -> None:
    change = ObjectWrite("/x", {"/a/b": 2, "/c/d": 3}, {"/a/b": 1})
    assert make_patch(change, {"a": {"b": 1}}) == [
        {"op": "test", "path": "/a/b", "value": 1},
        {"op": "test", "path": "/c", "value": None},
        {"op": "add", "path": "/a/b", "value": 2},
        {"op": "add", "path": "/c", "value": {"d": 3}},
    ]
