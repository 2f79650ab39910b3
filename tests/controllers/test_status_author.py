"""One author per status: what Kopf shows and what the policy says, in one patch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import make_pod_group

from koord.api.elasticquota import ElasticQuota
from koord.api.parse import Problem
from koord.controllers.status_author import StatusAuthor, Validation
from koord.kube.objects import ref_of_pod_group
from koord.kube.status import ConditionPatch, StatusPatch
from koord.operators.handlers import ResourceHandlers

GROUP = make_pod_group("default/a").build()
ODD = Validation((Problem("spec", "", "is odd"),))
READY = ConditionPatch("Ready", True, "Ready", "it is")


class Scene:
    """The author of any kind, with what it writes and enqueues."""

    def __init__(self, *, has_verdict: bool = True) -> None:
        self.written: list[StatusPatch] = []
        self.enqueued: list[str] = []
        self.events: list[tuple[str, str, str]] = []
        self.forgotten: list[str] = []
        writer: Any = SimpleNamespace(submit=lambda _, patch: self.written.append(patch))
        recorder: Any = SimpleNamespace(
            record=lambda ref, *_, **said: self.events.append(
                (ref.name, said["reason"], said["note"])
            ),
            forget=lambda ref, _: self.forgotten.append(ref.name),
        )
        self.author = StatusAuthor[str, Any](
            ElasticQuota, writer, ref_of_pod_group, lambda meta: meta["name"], recorder, has_verdict
        )
        self.author.enqueue = self.enqueued.append
        self.handlers = ResourceHandlers(self.author, lambda call, *given: call(*given))
        self.author.open()

    def body(self, **more: Any) -> dict[str, Any]:
        names = ElasticQuota.names
        meta = {"name": "a", "namespace": "default", "uid": GROUP.uid, "generation": 3}
        kind = {"apiVersion": names.api_version, "kind": names.kind}
        return {**kind, "metadata": meta, "spec": {}, **more}

    def say(self, *conditions: ConditionPatch, **fields: Any) -> None:
        self.author.write_status(GROUP, fields, conditions)

    def types(self) -> list[str]:
        return [condition.type for condition in self.written[-1].conditions]


def test_verdict_and_status_are_one_patch() -> None:
    scene = Scene()
    scene.author.show(scene.body(), ODD)
    assert scene.enqueued == ["a"]
    assert not scene.written, "the policy speaks first"
    scene.say(READY, used="1")
    scene.author.settle("a")
    (patch,) = scene.written
    assert scene.types() == ["Accepted", "Ready"]
    assert patch.conditions[0] == ConditionPatch("Accepted", False, "Invalid", ODD.message, 3)
    assert patch.fields == {"used": "1", "observedGeneration": GROUP.generation}
    assert patch.is_urgent


def test_nothing_is_written_on_an_object_that_was_not_shown() -> None:
    scene = Scene()
    scene.say(READY)
    assert not scene.written
    scene.author.show(scene.body(), Validation())
    scene.say(READY)
    scene.author.close()
    scene.say(READY)
    assert len(scene.written) == 1
    assert not scene.author.is_open


def test_a_verdict_on_what_cannot_be_decoded_leaves_the_rest_as_it_is() -> None:
    scene = Scene()
    accepted = {"type": "Accepted", "status": "True", "reason": "Valid", "message": ""}
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "it is"}
    status = {"lastValidSpec": {"max": {}}, "conditions": [accepted, ready]}
    scene.author.show(scene.body(status=status), ODD)
    scene.author.settle("a")
    scene.author.settle("a")
    (patch,) = scene.written
    assert patch.fields == {"lastValidSpec": {"max": {}}}
    assert scene.types() == ["Accepted", "Ready"]
    assert patch.conditions[1] == READY
    assert scene.author.status_of(GROUP.uid) == status, "what the writer compares with"


def test_a_deleted_object_is_forgotten() -> None:
    scene = Scene()
    scene.author.show(scene.body(), Validation())
    scene.author.forget(scene.body())
    scene.author.settle("a")
    scene.say(READY)
    assert not scene.written
    assert scene.author.validation_of(GROUP.uid) is None


async def test_an_object_is_enqueued_for_edits_and_for_a_verdict_that_is_not_said() -> None:
    scene = Scene()
    said = {"type": "Accepted", "reason": "Valid", "message": "the object is valid"}
    shown = {"conditions": [{**said, "observedGeneration": 3}]}

    async def see(body: dict[str, Any], event: str | None = "MODIFIED") -> int:
        scene.enqueued.clear()
        await scene.handlers.on_event({"type": event}, body)
        return len(scene.enqueued)

    assert await see(scene.body(), None) == 1
    assert await see(scene.body()) == 1, "it is not said yet"
    assert await see(scene.body(status=shown)) == 0
    edited = scene.body(status=shown)
    edited["metadata"] = {**edited["metadata"], "generation": 4}
    assert await see(edited) == 1
    await see(edited, "DELETED")
    assert scene.author.validation_of(GROUP.uid) is None
    assert await see(edited, "ADDED") == 1


async def test_all_objects_are_shown_again_when_kopf_restarts() -> None:
    scene = Scene(has_verdict=False)
    await scene.handlers.on_event({"type": None}, scene.body())
    await scene.handlers.on_event({"type": None}, scene.body())
    assert scene.enqueued == ["a"]
    await scene.handlers.on_cleanup()
    assert not scene.author.is_open
    await scene.handlers.on_startup()
    assert scene.author.is_open
    await scene.handlers.on_event({"type": None}, scene.body())
    assert scene.enqueued == ["a", "a"]


@pytest.mark.parametrize(
    ("kind", "is_valid"), [("SpecValid", True), ("SpecValid", False), ("ConfigInvalid", False)]
)
def test_settings_that_are_not_in_force_have_one_event(kind: str, *, is_valid: bool) -> None:
    scene = Scene()
    scene.author.show(scene.body(), Validation())
    status = is_valid if kind == "SpecValid" else not is_valid
    scene.say(ConditionPatch(kind, status, "MinExceedsMax", "lower min"))
    assert scene.events == ([] if is_valid else [("a", "MinExceedsMax", "lower min")])
    assert scene.forgotten == (["a"] if is_valid else [])


@pytest.mark.parametrize(
    ("condition", "is_urgent"),
    [
        (("SpecValid", False), True),
        (("SpecValid", True), False),
        (("QuorumReached", False), True),
        (("Degraded", True), True),
        (("Degraded", False), False),
        (("Timeout", True), True),
        (("Bound", False), False),
        (("Bound", True), False),
    ],
)
def test_conditions_that_users_must_act_on_are_urgent(
    condition: tuple[str, bool], *, is_urgent: bool
) -> None:
    scene = Scene()
    scene.author.show(scene.body(), Validation())
    scene.say(ConditionPatch(*condition, "Reason", "text"))
    assert scene.written[-1].is_urgent is is_urgent
