"""Quotas on a real API server: refused pods wait with a reason, and start when there is room."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.operators.conftest import Cluster

PREFIX = "quota.scheduling.koordinator.sh/"
GPU = "nvidia.com/gpu"


class Quotas:
    """The quotas of one test; names contain the namespace because they are unique per cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.box.client
        self._namespace = cluster.namespace
        self._path = (
            f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/elasticquotas"
        )

    def name(self, short: str) -> str:
        return f"{self._namespace}-{short}"

    def create(
        self,
        short: str,
        minimum: int,
        most: int,
        labels: Mapping[str, str] | None = None,
        **annotations: Any,
    ) -> None:
        body = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {
                "name": self.name(short),
                "namespace": self._namespace,
                "labels": {f"{PREFIX}{key}": value for key, value in (labels or {}).items()},
                "annotations": {f"{PREFIX}{k}": json.dumps(v) for k, v in annotations.items()},
            },
            "spec": {"min": {GPU: minimum}, "max": {GPU: most}},
        }
        self._client.create(self._path, body)

    def edit(self, short: str, **changes: Any) -> None:
        """Change ``min``, ``max``, ``labels`` or ``annotations``; None takes one away."""
        prefixed = {
            kind: {f"{PREFIX}{key}": value for key, value in changes.pop(kind).items()}
            for kind in ("labels", "annotations")
            if kind in changes
        }
        body = {"metadata": prefixed, "spec": changes}
        self._client.patch(f"{self._path}/{self.name(short)}", body)

    def delete(self, short: str) -> None:
        self._client.delete(f"{self._path}/{self.name(short)}")

    def delete_by_force(self, short: str) -> None:
        """Delete a quota without regard to what uses it."""
        self.delete(short)
        with suppress(SandboxApiError):  # it has no finalizer yet
            path = f"{self._path}/{self.name(short)}"
            self._client.patch(path, {"metadata": {"finalizers": None}})

    def set_max(self, short: str, most: int) -> None:
        self._client.patch(f"{self._path}/{self.name(short)}", {"spec": {"max": {GPU: most}}})

    def get(self, short: str) -> dict[str, Any]:
        return self._client.get(f"{self._path}/{self.name(short)}")

    def status(self, short: str) -> dict[str, Any]:
        return self.get(short).get("status", {})

    def recorded(self, short: str, name: str) -> dict[str, str]:
        annotations = self.get(short)["metadata"].get("annotations", {})
        found: dict[str, str] = json.loads(annotations.get(f"{PREFIX}{name}", "{}"))
        return found

    def label(self, short: str) -> dict[str, str]:
        return {f"{PREFIX}name": self.name(short)}


def test_gang_above_max_waits_whole_until_max_is_raised(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 16, namespaces=[cluster.namespace])
    cluster.add_nodes(3)
    cluster.gang("a", 3)
    cluster.expect_group("a", "RequestAboveMax")
    # The first message may have smaller numbers, from before all nodes were ready.
    told = "may use at most 16 nvidia.com/gpu, uses 0 and needs 24"
    cluster.expect(lambda: told in cluster.group_message("a"), "the numbers are right")
    cluster.expect_pod("a-0", "RequestAboveMax")
    assert not cluster.bound()
    quotas.set_max("team", 24)
    cluster.expect_bound("a-0", "a-1", "a-2")
    cluster.expect(
        lambda: quotas.status("team").get("used") == {GPU: "24"}, "the status is updated"
    )
    assert quotas.status("team")["runtime"] == {GPU: "24"}
    cluster.expect(lambda: quotas.recorded("team", "runtime") == {GPU: "24"}, "and annotated")
    assert quotas.recorded("team", "child-request") == {GPU: "24"}
    assert cluster.condition(quotas.get("team"), "Borrowing")[:2] == ("True", "Borrowing")
    assert cluster.condition(quotas.get("team"), "Accepted")[0] == "True"


def test_pod_refused_by_its_quota_starts_when_another_pod_ends(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("org", 0, 16, {"is-parent": "true"})
    quotas.create("team", 0, 8, {"parent": quotas.name("org")})
    cluster.add_nodes(2)
    cluster.pod("a", labels=quotas.label("team"))
    cluster.expect_bound("a")
    cluster.pod("b", labels=quotas.label("team"))
    cluster.expect_pod("b", "InsufficientMax")
    cluster.delete_pod("a")
    cluster.expect_bound("b")


def test_pods_of_an_invalid_quota_wait(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 8, {"parent": quotas.name("org")})
    cluster.add_nodes(1)
    cluster.pod("a", labels=quotas.label("team"))
    cluster.expect_pod("a", "QuotaNotInForce")
    cluster.expect(lambda: "conditions" in quotas.status("team"), "the quota says so, too")
    cluster.expect(
        lambda: cluster.condition(quotas.get("team"), "Ready")[1] == "ParentNotFound", "and why"
    )
    quotas.create("org", 0, 8, {"is-parent": "true"})
    cluster.expect_bound("a")


INVALID: dict[str, tuple[str, dict[str, Any], str, tuple[str, ...]]] = {
    "min above max, of a resource that the server does not compare": (
        "team",
        {"min": {"x.com/y": 3}, "max": {"x.com/y": 2}},
        "MinExceedsMax",
        ("min of x.com/y is 3, above max 2; raise max or lower min",),
    ),
    "min above the sum": (
        "team",
        {"min": {GPU: 6}},
        "SiblingMinSumExceedsParent",
        (f"min of {GPU} adds up to 10 below NAME-org, whose min is 8; raise the min of",),
    ),
    "min of a parent below the sum": (
        "org",
        {"min": {GPU: 4}},
        "ChildMinSumExceedsMin",
        (f"min of {GPU} of its children adds up to 8, above its own 4; raise that, or lower",),
    ),
    "cycle": (
        "org",
        {"labels": {"parent": "NAME-team"}},
        "Cycle",
        ("its parent NAME-team is below itself; name another in the label parent",),
    ),
    "orphan": (
        "team",
        {"labels": {"parent": "nobody"}},
        "ParentNotFound",
        ("its parent nobody does not exist", "create or correct it, or name another"),
    ),
    "another tree": (
        "team",
        {"labels": {"tree-id": "x"}},
        "TreeIDChanged",
        ('label tree-id is "x"', 'restore "", or create another quota'),
    ),
    "no longer a parent": (
        "org",
        {"labels": {"is-parent": "false"}},
        "IsParentHasChildren",
        ("it has children (NAME-other and maybe more)", 'restore the label is-parent "true"'),
    ),
    "a parent with pods": (
        "team",
        {"labels": {"is-parent": "true"}},
        "IsParentHasPods",
        ("it has pods and cannot become a parent; move them to another quota first",),
    ),
    "negative weight": (
        "team",
        {"annotations": {"shared-weight": '{"cpu":"-2"}'}},
        "NegativeSharedWeight",
        ("the shared weight of cpu is -2; it must not be negative",),
    ),
    "absurd min": (
        "team",
        {"min": {"cpu": "1e39"}, "max": {"cpu": "1e40"}},
        "MaxKeysNotIncluded",
        ("max names cpu, which is not in the max above it (NAME-org); add it there, or remove it",),
    ),
    "namespaces that are none": (
        "team",
        {"annotations": {"namespaces": "mine"}},
        "InvalidAnnotation",
        ("annotation namespaces cannot be read: mine",),
    ),
    "a limit that is none": (
        "team",
        {"annotations": {"admission": '{"cpu":NaN}'}},
        "InvalidAnnotation",
        ('annotation admission cannot be read: {"cpu":NaN}',),
    ),
}


LAST = [*INVALID][-1]


def find_inverse(quota: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return the edit that reverts another one."""
    now: dict[str, Any] = {**quota["spec"]}
    for kind in ("labels", "annotations"):
        written = quota["metadata"].get(kind, {})
        now[kind] = {key.removeprefix(PREFIX): value for key, value in written.items()}
    return {kind: {key: now[kind].get(key) for key in keys} for kind, keys in change.items()}


def test_last_valid_spec_stays_active_after_an_invalid_edit(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("org", 8, 16, {"is-parent": "true"})
    for name in ("team", "other"):
        quotas.create(name, 4, 16, {"parent": quotas.name("org")})
    cluster.add_nodes(2)
    cluster.pod("a", labels=quotas.label("team"))
    cluster.expect_bound("a")

    def says(short: str, reason: str, parts: tuple[str, ...]) -> bool:
        *said, text = cluster.condition(quotas.get(short), "ConfigInvalid")
        named = (part.replace("NAME", cluster.namespace) for part in parts)
        return said == ["True", reason] and all(part in text for part in named)

    for edit, (short, change, reason, parts) in INVALID.items():
        before = find_inverse(quotas.get(short), change)
        quotas.edit(short, **json.loads(json.dumps(change).replace("NAME", cluster.namespace)))
        what = f"{edit}: {reason}, {parts}"
        cluster.expect(lambda: says(short, reason, parts), what)  # noqa: B023 - at once
        assert cluster.condition(quotas.get(short), "Ready")[0] == "True"
        assert quotas.status(short)["lastValidSpec"]
        if edit != LAST:
            quotas.edit(short, **before)
    cluster.pod("b", labels=quotas.label("other"))
    cluster.expect_bound("b")
    cluster.pod("c", labels=quotas.label("team"))
    cluster.expect(lambda: "Insufficient" in cluster.pod_reason("c"), "limits hold as they were")
    assert set(cluster.bound()) == {"a", "b"}


def test_pod_above_the_submission_limit_waits_for_earlier_pods(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 16)
    quotas.edit("team", annotations={"admission": json.dumps({GPU: "8"})})
    cluster.add_nodes(2)

    def limit() -> str:
        kept = quotas.status("team").get("lastValidSpec", {})
        return str(kept.get("annotations", {}).get(f"{PREFIX}admission"))

    cluster.expect(lambda: GPU in limit(), "the limit is in force")
    cluster.pod("a", labels=quotas.label("team"))
    cluster.expect_bound("a")
    cluster.pod("b", labels=quotas.label("team"))
    cluster.expect_pod("b", "SubmissionExceeded")
    cluster.delete_pod("a")
    cluster.expect_bound("b")


def test_invalid_edit_without_operators_changes_nothing(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 4, 8)
    cluster.add_nodes(1)
    kept = {GPU: "4"}
    cluster.expect(
        lambda: quotas.status("team").get("lastValidSpec", {}).get("min") == kept, "it is kept"
    )
    cluster.operators.kill()
    quotas.edit("team", labels={"parent": "nobody"})
    cluster.operators.start()
    cluster.pod("a", labels=quotas.label("team"))
    cluster.expect_bound("a")
    cluster.expect(
        lambda: cluster.condition(quotas.get("team"), "ConfigInvalid")[1] == "ParentNotFound",
        "the edit is refused",
    )
    path = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"
    cluster.expect(
        lambda: (
            "ParentNotFound" in {one["reason"] for one in cluster.box.client.get(path)["items"]}
        ),
        "the quota has an event",
    )
    assert cluster.condition(quotas.get("team"), "Ready")[0] == "True"
    assert quotas.status("team")["lastValidSpec"]["min"] == kept


@pytest.mark.parametrize(
    ("minimum", "most", "part"),
    [
        (9, 8, f"min must not exceed max for {GPU}"),
        (0, "1k1", "spec.max"),
        (0, "NaN", "spec.max"),
        (0, "-1", "spec.max"),
        (0, -1, "spec.max"),
        ("-1e40", 8, "spec.min"),
        (0, "8 GPUs", "spec.max"),
    ],
)
def test_invalid_quota_is_rejected_by_the_server(
    cluster: Cluster, minimum: Any, most: Any, part: str
) -> None:
    with pytest.raises(SandboxApiError, match=part):
        Quotas(cluster).create("team", minimum, most)


def test_max_beyond_int64_is_no_limit(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, "1e40")  # type: ignore[arg-type]
    cluster.add_nodes(1)
    cluster.pod("a", labels=quotas.label("team"))
    cluster.expect_bound("a")
    cluster.expect(lambda: quotas.status("team").get("used") == {GPU: "8"}, "the status is updated")


def test_children_report_a_deleted_parent_until_it_is_recreated(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("org", 8, 16, {"is-parent": "true"})
    quotas.create("team", 8, 16, {"parent": quotas.name("org")})
    quotas.create("free", 0, 16)
    cluster.add_nodes(3)
    cluster.pod("a", labels=quotas.label("team"))
    cluster.expect_bound("a")
    quotas.delete_by_force("org")
    cluster.expect(
        lambda: cluster.condition(quotas.get("team"), "Ready")[:2] == ("False", "ParentNotFound"),
        "it says so",
    )
    text = cluster.condition(quotas.get("team"), "ConfigInvalid")[2]
    assert text.startswith(f"its parent {quotas.name('org')} does not exist")
    cluster.pod("b", labels=quotas.label("team"))
    cluster.pod("c", labels=quotas.label("free"))
    cluster.expect_bound("c")
    cluster.expect_pod("b", "QuotaNotInForce")
    assert "a" in cluster.bound()
    quotas.create("org", 8, 16, {"is-parent": "true"})
    cluster.expect_bound("b")


def test_max_below_usage_evicts_nothing_at_once_and_admits_nothing(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("team", 0, 16)
    cluster.add_nodes(2)
    for name in "ab":
        cluster.pod(name, labels=quotas.label("team"))
    cluster.expect_bound("a", "b")
    quotas.set_max("team", 4)
    cluster.expect(
        lambda: cluster.condition(quotas.get("team"), "OverEntitlement")[0] == "True", "it says so"
    )
    text = cluster.condition(quotas.get("team"), "OverEntitlement")[2]
    assert f"uses 16 {GPU} but is entitled to 4" in text
    assert "after 120s its pods are evicted if" in text
    assert cluster.condition(quotas.get("team"), "ConfigInvalid")[0] == "False"
    cluster.pod("c", gpus=1, labels=quotas.label("team"))
    cluster.expect_pod("c", "InsufficientMax")
    assert set(cluster.bound()) == {"a", "b"}
