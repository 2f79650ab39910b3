"""Series of quotas go with what they are about: nothing stale is left when a label changes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import make_cluster
from tests.objects import remove_quota, upsert_quota
from tests.runtime.test_metrics import families_of
from tests.support.authors import FakeAuthor

from koord.controllers.quota_status import QuotaStatusPolicy
from koord.core.quota.hooks import Hooks, QuotaHook
from koord.core.quota.profile import GENERATED_MAX
from koord.kube.translate.quotas import QuotaTranslator
from koord.runtime.collectors import QuotaSeries
from koord.runtime.descriptions import describe_quotas
from koord.runtime.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client.samples import Sample

    from koord.core.quota.model import QuotaName

NAME = "scheduler_elastic_quota_status"


class Budget(QuotaHook): ...


class Scene:
    def __init__(self, hooks: Hooks | None = None) -> None:
        self.state = make_cluster(hooks=hooks).state
        self.policy = QuotaStatusPolicy(self.state, FakeAuthor(), QuotaTranslator())
        self.metrics = Metrics()
        self.metrics.watch_text(QuotaSeries(lambda: self.policy.summaries))
        self.state.upsert_node(make_node("n").cpu(10_000).memory(1 << 30).build())

    def labels(self, name: QuotaName) -> set[tuple[str, str, str]]:
        """Return the (tree, is_parent, parent) that a quota has series with."""
        return {
            (one.labels["tree"], one.labels["is_parent"], one.labels["parent"])
            for one in self.samples()
            if one.labels["name"] == name
        }

    def samples(self) -> Sequence[Sample]:
        self.policy.update_all()
        (family,) = (one for one in families_of(self.metrics) if one.name == NAME)
        samples: Sequence[Sample] = family.samples
        return samples

    def value(self, field: str, resource: str) -> float | None:
        for one in self.samples():
            if (one.labels["field"], one.labels["resource"]) == (field, resource):
                return one.value
        return None


TEAM = make_quota("team", uid="1", min={"cpu": 1500}, max={"cpu": 4000, "memory": 1 << 30})


def test_cpu_is_in_thousandths_and_memory_in_bytes() -> None:
    scene = Scene()
    upsert_quota(scene.state, TEAM)
    pod = make_pod("p").requests(cpu=500, memory=1 << 20).quota("team").running("n")
    scene.state.upsert_pod(pod.build())
    assert scene.value("min", "cpu") == 1500
    assert scene.value("used", "cpu") == 500
    assert scene.value("used", "memory") == 1 << 20
    assert scene.value("sharedWeight", "cpu") == 4000
    assert scene.value("runtime", "cpu") == 500


def test_a_limit_that_is_none_is_infinite() -> None:
    scene = Scene()
    upsert_quota(scene.state, make_quota("root", max={"cpu": GENERATED_MAX}))
    assert scene.value("max", "cpu") == scene.value("sharedWeight", "cpu") == math.inf


def test_series_end_with_their_quota_or_when_a_label_changes() -> None:
    scene = Scene()
    org = make_quota("org", uid="2", is_parent=True, min=TEAM.min, max=TEAM.max)
    for spec in (org, TEAM):
        upsert_quota(scene.state, spec)
    root = "koordinator-root-quota"
    assert scene.labels("team") == {("", "false", root)}
    upsert_quota(scene.state, replace(TEAM, parent="org"))
    assert scene.labels("team") == {("", "false", "org")}
    upsert_quota(scene.state, replace(TEAM, is_parent=True))
    assert scene.labels("team") == {("", "true", root)}
    remove_quota(scene.state, "/team")
    assert scene.labels("team") == set()
    other = replace(TEAM, uid="3", tree_id="gpu", is_tree_root=True, total=TEAM.max)
    upsert_quota(scene.state, other)
    assert scene.labels("team") == {("gpu", "false", root)}


def test_root_of_a_tree_reports_unschedulable_resources() -> None:
    scene = Scene()
    root = replace(TEAM, tree_id="gpu", is_tree_root=True, total=TEAM.max, unschedulable=TEAM.min)
    upsert_quota(scene.state, root)
    assert scene.value("unschedulable-resource", "cpu") == 1500
    upsert_quota(scene.state, replace(root, is_tree_root=False))
    assert scene.value("unschedulable-resource", "cpu") is None


def test_operations_on_quotas_are_timed() -> None:
    scene = Scene()
    scene.metrics.quotas.attach(scene.state.quotas)
    upsert_quota(scene.state, TEAM)
    scene.policy.update_all()
    name = "scheduler_elastic_quota_process_latency"
    for operation in ("settle", "solve"):
        count = scene.metrics.registry.get_sample_value(f"{name}_count", {"operation": operation})
        assert count == 1


def test_hooks_are_timed() -> None:
    scene = Scene(Hooks({"budget": Budget()}))
    scene.metrics.quotas.attach(scene.state.quotas)
    upsert_quota(scene.state, TEAM)
    scene.policy.update_all()
    name = "scheduler_elastic_quota_hook_plugin_latency_count"
    for operation in ("on_quota_change", "augment_status"):
        labels = {"plugin": "budget", "operation": operation}
        assert scene.metrics.registry.get_sample_value(name, labels) == 1


def test_status_writes_are_timed() -> None:
    metrics = Metrics()
    metrics.quotas.write.observe(0.003)
    name = "scheduler_update_elastic_quota_status_duration_seconds_bucket"
    assert metrics.registry.get_sample_value(name, {"le": "0.002"}) == 0
    assert metrics.registry.get_sample_value(name, {"le": "0.004"}) == 1
    assert metrics.registry.get_sample_value(name, {"le": "16.384"}) == 1


def test_debug_page_has_all_numbers_of_a_quota() -> None:
    scene = Scene()
    upsert_quota(scene.state, TEAM)
    page = describe_quotas(scene.state)
    assert msgspec.json.encode(page)
    (quota,) = page["quotas"]
    assert quota["name"] == "team"
    assert quota["allowLentResource"] is True
    assert quota["autoScaleMin"] == {"cpu": 1500}
    assert quota["selfUsed"] == {}
