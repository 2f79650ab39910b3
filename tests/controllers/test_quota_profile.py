"""Quotas and statuses of profiles are written when something changes, and not otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import make_node
from tests.cluster import make_cluster
from tests.objects import upsert_quota

from koord.controllers.quota_profile import ProfileStatusPolicy
from koord.controllers.status_controller import StatusController
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.quota.model import QuotaSpec
from koord.core.quota.profile import GeneratedQuota, ProfileKey, QuotaProfile
from koord.kube.errors import Forbidden, KubeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from koord.core.engine.state import ClusterState
    from koord.kube.status import ConditionPatch


class Sink:
    """Keeps what was said and made; a quota that was made is seen at once."""

    def __init__(self, state: ClusterState) -> None:
        self.said: list[tuple[str, Mapping[str, Any], dict[str, ConditionPatch]]] = []
        self.made: list[GeneratedQuota] = []
        self.error: KubeError | None = None
        self.forgotten: list[ProfileKey] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._state = state

    async def write(
        self, profile: QuotaProfile, quota: GeneratedQuota, present: QuotaSpec | None, meta: object
    ) -> None:
        self.meanwhile()
        if self.error is not None:
            raise self.error
        self.made.append(quota)
        spec = QuotaSpec(quota.name, quota.namespace, total=quota.total, profile=quota.profile)
        upsert_quota(self._state, spec)

    def forget(self, key: ProfileKey) -> None:
        self.forgotten.append(key)

    def write_status(
        self,
        profile: QuotaProfile,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
    ) -> None:
        self.said.append((profile.name, fields, {one.type: one for one in conditions}))


class Scene:
    """A state, its controller, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.state = make_cluster().state
        self.sink = Sink(self.state)
        self.now = 0.0
        self.policy = ProfileStatusPolicy(self.state, self.sink, self.sink, lambda _: None)
        self.controller = StatusController(self.policy, lambda: self.now)

    async def settle(self, seconds: int = 8) -> None:
        for _ in range(seconds):
            self.controller.look()
            self.now += 1.0
            await self.controller.flush()

    def add_node(self, name: str, **labels: str) -> None:
        node = make_node(name)
        for key, value in labels.items():
            node.label(key, value)
        self.state.upsert_node(node.build())

    def add(self, name: str, *pools: str, quota: str = "root", **settings: Any) -> QuotaProfile:
        selector = (Requirement("pool", SelectorOperator.IN, pools),)
        profile = QuotaProfile("ns", name, quota, selector, uid=name, generation=2)
        self.state.profiles.upsert(replace(profile, **settings))
        return profile

    def said_last(self, name: str) -> tuple[Mapping[str, Any], dict[str, ConditionPatch]]:
        return next((fields, said) for one, fields, said in reversed(self.sink.said) if one == name)


async def test_quota_is_written_once_and_again_when_its_nodes_change() -> None:
    scene = Scene()
    scene.add_node("1", pool="a")
    scene.add("a", "a")
    await scene.settle()
    assert len(scene.sink.made) <= 2, "once, and once more when it is seen"
    fields, said = scene.said_last("a")
    assert (said["Ready"].status, said["Ready"].reason) == (True, "Made")
    assert (said["NodeOverlap"].status, said["Ready"].observed_generation) == (False, 2)
    assert fields["nodes"] == 1
    made, told = len(scene.sink.made), len(scene.sink.said)
    await scene.settle()
    assert (len(scene.sink.made), len(scene.sink.said)) == (made, told), "nothing has changed"
    scene.add_node("2", pool="a")
    scene.add_node("3", pool="b")
    await scene.settle()
    assert scene.said_last("a")[0]["nodes"] == 2
    before, after = scene.sink.made[0].total, scene.sink.made[-1].total
    assert {key: 2 * amount for key, amount in before.items()} == after


async def test_foreign_quota_is_not_written_until_its_label_names_the_profile() -> None:
    scene = Scene()
    upsert_quota(scene.state, QuotaSpec("root", "ns"))
    scene.add("a", "a")
    await scene.settle()
    assert not scene.sink.made
    assert scene.said_last("a")[1]["Ready"].reason == "QuotaNotOurs"
    upsert_quota(scene.state, QuotaSpec("root", "ns", profile="a"))
    await scene.settle()
    assert scene.sink.made
    assert scene.said_last("a")[1]["Ready"].reason == "Made"


async def test_both_profiles_of_a_node_report_the_overlap() -> None:
    scene = Scene()
    scene.add_node("1", pool="a")
    scene.add("a", "a", quota="x")
    scene.add("b", "a", quota="y")
    await scene.settle()
    for name, other in (("a", "b"), ("b", "a")):
        overlap = scene.said_last(name)[1]["NodeOverlap"]
        assert overlap.status
        assert f"(1) are also selected by ns/{other}" in overlap.message
    scene.state.profiles.remove("ns/b")
    await scene.settle()
    assert not scene.said_last("a")[1]["NodeOverlap"].status


async def test_invalid_profile_writes_no_quota() -> None:
    scene = Scene()
    scene.add("a", "a", problems=("spec.resourceRatio: 2: too much",))
    await scene.settle()
    assert not scene.sink.made
    fields, said = scene.said_last("a")
    assert not fields
    assert said["Ready"].reason == "InvalidSettings"
    assert "spec.resourceRatio: 2" in said["Ready"].message


async def test_last_valid_settings_stay_active_after_an_invalid_edit() -> None:
    scene = Scene()
    scene.add_node("1", pool="a")
    scene.add("a", "a")
    await scene.settle()
    problem = "metadata.annotations[resource-keys]: cpu: is not JSON"
    scene.add("a", problems=(problem,), generation=3)
    await scene.settle()
    fields, said = scene.said_last("a")
    assert (said["Ready"].status, said["Ready"].reason) == (False, "InvalidSettings")
    assert said["Ready"].observed_generation == 3
    assert said["Ready"].message == (
        f"{problem}; until that is corrected, the last valid settings stay active"
    )
    assert (fields["nodes"], fields["lastValidSpec"]["spec"]["quotaName"]) == (1, "root")
    scene.add_node("2", pool="a")
    await scene.settle()
    assert scene.sink.made[-1].total["cpu"] == 2 * scene.sink.made[0].total["cpu"]
    scene.add("a", "a", generation=4)
    await scene.settle()
    fields, said = scene.said_last("a")
    assert said["Ready"].status
    assert fields["lastValidSpec"]["spec"]["quotaName"] == "root"


async def test_failed_write_is_reported_and_retried() -> None:
    scene = Scene()
    scene.add("a", "a")
    scene.sink.error = Forbidden(403, "Forbidden", "no right to do so")
    await scene.settle()
    ready = scene.said_last("a")[1]["Ready"]
    assert (ready.status, ready.reason) == (False, "CreateQuotaFailed")
    assert "no right to do so" in ready.message
    scene.sink.error = None
    await scene.settle(12)
    assert scene.sink.made
    assert scene.said_last("a")[1]["Ready"].status


@pytest.mark.parametrize("error", [None, Forbidden(403, "Forbidden", "no right to do so")])
async def test_no_status_for_a_profile_deleted_during_the_write(
    error: KubeError | None,
) -> None:
    scene = Scene()
    scene.add("a", "a")
    scene.sink.error = error
    scene.sink.meanwhile = lambda: scene.state.profiles.remove("ns/a")
    await scene.settle()
    assert not scene.sink.said
    assert not scene.controller._due
    assert not scene.policy._failures
    assert scene.sink.forgotten == ["ns/a"]


async def test_profile_recreated_during_the_write_gets_its_own_status() -> None:
    scene = Scene()
    scene.add_node("1", pool="b")
    scene.add("a", "a")

    def replace_it() -> None:
        scene.sink.meanwhile = lambda: None
        scene.state.profiles.remove("ns/a")
        scene.add("a", "b", uid="another", generation=1)

    scene.sink.meanwhile = replace_it
    await scene.settle()
    told = [(fields["nodes"], said["Ready"]) for _, fields, said in scene.sink.said]
    assert {(nodes, ready.observed_generation) for nodes, ready in told} == {(1, 1)}
