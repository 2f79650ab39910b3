"""Profiles from the wire, and the quotas that are written for them."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from koord.core.model.nodes import Node
from koord.core.quota.profile import QuotaProfile, make_root_quota
from koord.kube.client import Media
from koord.kube.errors import Conflict
from koord.kube.quota_objects import RootQuotaWriter, make_body
from koord.kube.translate.quotas import (
    ProfileTranslator,
    encode_last_valid_profile,
    translate_profile,
    translate_quota,
)
from koord.kube.wire import WireCustomResource, WireObjectMeta, WireOwnerReference

if TYPE_CHECKING:
    from koord.core.quota.model import QuotaSpec

PREFIX = "quota.scheduling.koordinator.sh/"
POLICY = "operators.koordinator.sh/deletion-policy"
SPEC = {"quotaName": "root", "nodeSelector": {"matchLabels": {"pool": "a"}}}


def translate(spec: Any, **annotations: str) -> QuotaProfile:
    keys = {"policy": POLICY, "keys": f"{PREFIX}resource-keys"}
    meta = WireObjectMeta(
        name="a",
        namespace="ns",
        uid="u",
        generation=3,
        labels={f"{PREFIX}tree-id": "t"},
        annotations={keys[key]: value for key, value in annotations.items()},
    )
    return translate_profile(meta, json.dumps(spec).encode())


def test_every_setting_is_read() -> None:
    profile = translate(
        {**SPEC, "quotaLabels": {"x": "y"}, "resourceRatio": "0.9"},
        policy="Delete",
        keys='["cpu","cpu","nvidia.com/gpu"]',
    )
    assert (profile.key, profile.quota_name, profile.tree_id) == ("ns/a", "root", "t")
    assert (profile.ratio, profile.labels) == (Fraction(9, 10), {"x": "y"})
    assert profile.keys == ("cpu", "nvidia.com/gpu")
    assert profile.is_owner
    assert not profile.problems


@pytest.mark.parametrize(
    ("spec", "annotations", "problem"),
    [
        (None, {}, "spec.quotaName: is required"),
        ({**SPEC, "quotaName": None}, {}, "spec.quotaName"),
        ({**SPEC, "resourceRatio": "2"}, {}, 'spec.resourceRatio: "2": resourceRatio must be'),
        ({**SPEC, "resourceRatio": 2}, {}, "spec.resourceRatio: 2: must be a string"),
        (
            {**SPEC, "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            {},
            'spec.nodeSelector.matchExpressions[0].operator: "Near": must be',
        ),
        (SPEC, {"keys": "cpu"}, f"[{PREFIX}resource-keys]: cpu: is not JSON"),
        (SPEC, {"policy": "Keep"}, f"[{POLICY}]: Keep: must be Delete or Retain"),
        ("text", {}, "spec"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_its_value(spec, annotations, problem: str) -> None:
    profile = translate(spec, **annotations)
    assert profile.key == "ns/a"
    assert any(problem in one for one in profile.problems), profile.problems


@pytest.mark.parametrize(
    ("spec", "annotations"),
    [
        (SPEC, {}),
        (
            {**SPEC, "quotaLabels": {"x": "y"}, "resourceRatio": ".000000125"},
            {"policy": "Delete", "keys": '["cpu","nvidia.com/gpu"]'},
        ),
        ({"quotaName": "root", "nodeSelector": {}, "resourceRatio": "1"}, {}),
        (
            {
                "quotaName": "root",
                "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            },
            {"keys": "[]"},
        ),
    ],
)
def test_what_was_valid_outlives_a_restart(spec, annotations) -> None:
    valid = translate(spec, **annotations)
    status = {"lastValidSpec": encode_last_valid_profile(valid)}
    wire = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 4},
        "spec": {**SPEC, "resourceRatio": "2"},
        "status": status,
    }
    seen = ProfileTranslator().translate(
        msgspec.json.decode(json.dumps(wire), type=WireCustomResource)
    )
    assert seen.problems
    assert seen.last_valid is not None
    assert replace(seen.last_valid, generation=3) == valid


@pytest.mark.parametrize(
    "status", [None, {}, {"lastValidSpec": 5}, {"lastValidSpec": {"spec": {"quotaName": 5}}}]
)
def test_nonsense_in_the_status_is_as_if_there_were_none(status) -> None:
    wire = {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "status": status}
    seen = ProfileTranslator().translate(
        msgspec.json.decode(json.dumps(wire), type=WireCustomResource)
    )
    assert seen.problems
    assert seen.last_valid is None


class Server:
    """Takes what is applied."""

    def __init__(self) -> None:
        self.applied: list[tuple[dict[str, Any], str]] = []
        self.is_refusing = False

    async def patch(self, path: str, body: Any, media: Media, params: dict[str, str]) -> bytes:
        assert path.endswith("/namespaces/ns/elasticquotas/root")
        assert media is Media.APPLY_PATCH
        if self.is_refusing:
            raise Conflict(409, "Conflict", "another manager")
        self.applied.append((body, params["force"]))
        return b""


PROFILE = replace(translate(SPEC), keys=("cpu",))
NODE = Node("n", labels={"pool": "a"}, allocatable={"cpu": 53000, "memory": 80 << 30})


def stored(profile: QuotaProfile, **changes: Any) -> tuple[QuotaSpec, WireObjectMeta]:
    body = make_body(profile, make_root_quota(profile, [NODE]))
    owners = [
        WireOwnerReference(uid=one["uid"]) for one in body["metadata"].get("ownerReferences", ())
    ]
    meta = WireObjectMeta(
        name="root",
        namespace="ns",
        uid="q",
        labels={"own": "label", **body["metadata"]["labels"], **changes.get("labels", {})},
        annotations={**body["metadata"]["annotations"], **changes.get("annotations", {})},
        owner_references=owners,
    )
    spec = {**body["spec"], **changes.get("spec", {})}
    wire = {"metadata": msgspec.to_builtins(meta), "spec": spec}
    return translate_quota(msgspec.json.decode(json.dumps(wire), type=WireCustomResource)), meta


def test_a_quota_carries_all_that_a_tree_needs() -> None:
    body = make_body(PROFILE, make_root_quota(PROFILE, [NODE]))
    assert body["metadata"]["annotations"] == {
        f"{PREFIX}total-resource": '{"cpu":"53","memory":"80Gi"}',
        f"{PREFIX}unschedulable-resource": "{}",
        "operators.koordinator.sh/node-selector": (
            '{"matchExpressions":[{"key":"pool","operator":"In","values":["a"]}]}'
        ),
    }
    assert body["metadata"]["labels"] == {
        f"{PREFIX}profile": "a",
        f"{PREFIX}tree-id": "t",
        f"{PREFIX}is-root": "true",
    }
    assert body["spec"] == {"min": {"cpu": "53"}, "max": {"cpu": "9007199254740992m"}}
    quota, _ = stored(PROFILE)
    assert (quota.tree_id, quota.is_tree_root, quota.profile) == ("t", True, "a")
    assert quota.selector == PROFILE.selector
    assert quota.total == {"cpu": 53000, "memory": 80 << 30}


async def test_the_first_write_takes_nothing_over_and_the_others_name_the_object() -> None:
    server = Server()
    writer = RootQuotaWriter(server)  # type: ignore[arg-type]
    made = make_root_quota(PROFILE, [NODE])
    assert await writer.write(PROFILE, made, None, None)
    quota, meta = stored(PROFILE)
    assert not await writer.write(PROFILE, made, quota, meta), "all is as it should be"
    more = make_root_quota(PROFILE, [NODE, replace(NODE, name="m")])
    assert await writer.write(PROFILE, more, quota, meta)
    (first, force), (second, again) = server.applied
    assert (force, again) == ("false", "true")
    assert "uid" not in first["metadata"]
    assert second["metadata"]["uid"] == "q"


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"max": {"cpu": "1"}}},
        {"labels": {f"{PREFIX}is-root": "false"}},
        {"annotations": {f"{PREFIX}total-resource": "{}"}},
    ],
)
async def test_what_somebody_changes_by_hand_is_written_again(changes: dict[str, Any]) -> None:
    server = Server()
    writer = RootQuotaWriter(server)  # type: ignore[arg-type]
    made = make_root_quota(PROFILE, [NODE])
    await writer.write(PROFILE, made, *stored(PROFILE))
    assert await writer.write(PROFILE, made, *stored(PROFILE, **changes))


async def test_the_quota_is_owned_only_where_it_is_to_go_with_the_profile() -> None:
    server = Server()
    writer = RootQuotaWriter(server)  # type: ignore[arg-type]
    owner = replace(PROFILE, is_owner=True)
    made = make_root_quota(owner, [NODE])
    await writer.write(PROFILE, made, *stored(PROFILE))
    assert await writer.write(owner, made, *stored(PROFILE))
    kept, owned = (body["metadata"].get("ownerReferences") for body, _ in server.applied)
    assert kept is None
    assert [(one["kind"], one["uid"]) for one in owned] == [("ElasticQuotaProfile", "u")]


async def test_what_was_refused_is_not_taken_for_written() -> None:
    server = Server()
    writer = RootQuotaWriter(server)  # type: ignore[arg-type]
    made = make_root_quota(PROFILE, [NODE])
    server.is_refusing = True
    with pytest.raises(Conflict):
        await writer.write(PROFILE, made, *stored(PROFILE))
    server.is_refusing = False
    assert await writer.write(PROFILE, made, *stored(PROFILE))


async def test_what_was_applied_is_kept_for_as_long_as_there_is_the_profile() -> None:
    server = Server()
    writer = RootQuotaWriter(server)  # type: ignore[arg-type]
    made = make_root_quota(PROFILE, [NODE])
    await writer.write(PROFILE, made, *stored(PROFILE))
    another = replace(PROFILE, uid="another")
    assert await writer.write(another, made, *stored(PROFILE)), "it has written nothing yet"
    writer.forget(another.key)
    assert not writer._applied
