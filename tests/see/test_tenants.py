"""One state, many askers: what each sees depends on no name of what she may not list."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.objects import upsert_reservation
from tests.reservation.make import make_reservation
from tests.support.laws import examples

from koord.answers.encoding import encode
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import EVERYTHING, Sight
from koord.see.paging import InvalidQuery
from koord.see.route import Ask, NothingThere, Route, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import MOST_SIGHTS, Snapshot

HERE = Target(TargetKind.POD, "default", "")
TENANT = Sight(frozenset({"team-a"}), quotas=False, nodes=False, reservations=False)
OWN = {"namespace": "team-a", "kind": "podgroup", "name": "mine"}
SUBMIT = """
apiVersion: v1
kind: Pod
metadata: {name: new, namespace: team-a}
spec:
  schedulingGates: [{name: operators.koordinator.sh/placement}]
  containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]
"""


def make_snapshot(secret: str, gpus: int = 8) -> Snapshot:
    """Make a cluster in which everything that is not of team-a has a name that begins so.

    The order of names is that of pods, and of plans: both secrets are before team-a.
    """
    cluster = make_cluster(0).nodes(
        make_node(f"{secret}-n1").gpu(8),
        make_node(f"{secret}-n2").gpu(8),
        make_node(f"{secret}-n3").gpu(8).unschedulable(),
    )
    cluster.quotas(
        make_quota(f"{secret}-top", is_parent=True, min={GPU: 16}, max={GPU: 24}),
        make_quota("own", "team-a", parent=f"{secret}-top", min={GPU: 8}, max={GPU: 16}),
        make_quota(f"{secret}-q", f"{secret}-b", parent=f"{secret}-top", min={GPU: 8}),
    )
    cluster.pod_groups(make_pod_group("team-a/mine", 2), make_pod_group(f"{secret}-b/train", 2))
    for at in (0, 1):
        mine = make_pod(f"team-a/mine-{at}").gang("team-a/mine").gpu(8).quota("own")
        theirs = make_pod(f"{secret}-b/train-{at}").gang(f"{secret}-b/train").gpu(gpus)
        runs = make_pod(f"{secret}-b/run-{at}").gpu(5).running(f"{secret}-n{at + 1}")
        cluster.pods(mine, theirs.quota(f"{secret}-q"), runs.quota(f"{secret}-q"))
    upsert_reservation(cluster.state, make_reservation(f"{secret}-held", f"{secret}-n2"))
    return Snapshot(Reading(cluster.state), HERE, 1, 1.0)


def ask(route: Route, snapshot: Snapshot, body: dict[str, object], secret: str) -> str:
    names = {"Quota": {"name": f"{secret}-q"}, "Topology": {"name": "none"}}
    parts = names.get(route.answer, OWN)
    parts = {"name": f"{secret}-n1"} if route.answer in {"Node", "Devices"} else parts
    question = Ask({k: v for k, v in parts.items() if f"{{{k}}}" in route.path}, body)
    try:
        answer = route.answer_from(snapshot, question)
    except (NothingThere, InvalidQuery) as refusal:
        return str(refusal).replace(secret, "SAID")  # the asker's own words
    return json.dumps(encode(wrap(head_for(route, snapshot, question, "i", 1.0), answer)))


BODIES = {
    "Room": [{"shape": "1x1"}, {"shape": "1x1", "quota": "own"}],
    "WhatIf": [
        {"edits": [{"submit": {"manifest": SUBMIT}}]},
        {"edits": [{"delete": {"ref": "podgroup/team-a/mine"}}]},
        {"edits": [{"patch": {"ref": "quota/own", "merge": {"spec": {"max": {GPU: "24"}}}}}]},
    ],
}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.answer)
@settings(max_examples=examples(2), deadline=None)
@given(st.sampled_from([1, 8]))
def test_no_answer_depends_on_names_that_a_tenant_may_not_list(route: Route, gpus: int) -> None:
    for body in BODIES.get(route.answer, [{}]):
        told = [
            ask(route, make_snapshot(secret, gpus).seen_with(TENANT), body, secret)
            for secret in ("secret", "serret")
        ]
        assert told[0] == told[1].replace("serret", "secret")
        assert "secret" not in told[0]
        assert "serret" not in told[1]


@pytest.mark.parametrize(
    "edit",
    [
        {"delete": {"ref": "pod/{0}-b/{1}"}},
        {"patch": {"ref": "podgroup/{0}-b/{1}", "merge": {"spec": {"priority": 9}}}},
        {"patch": {"ref": "quota/{0}-{1}", "merge": {"spec": {"max": {GPU: "24"}}}}},
        {"drain": {"nodes": ["{0}-{1}"]}},
        {"addNodes": {"like": "{0}-{1}", "count": 1}},
        {
            "submit": {
                "manifest": SUBMIT.replace("team-a", "{0}-b").replace("name: new", "name: {1}")
            }
        },
    ],
    ids=lambda edit: next(iter(edit)),
)
@pytest.mark.parametrize("name", ["run-0", "train", "q", "n1"])
def test_what_edits_say_does_not_tell_what_exists(edit: dict[str, object], name: str) -> None:
    (route,) = (route for route in ROUTES if route.answer == "WhatIf")
    snapshot = make_snapshot("secret").seen_with(TENANT)

    def tell(name: str) -> str:
        text = json.dumps(edit).replace("{0}", "secret").replace("{1}", name)
        return ask(route, snapshot, {"edits": [json.loads(text)]}, "secret")

    assert tell(name) == tell("none").replace("none", name)


def test_a_tenant_sees_her_own_quota_and_the_amounts_of_others() -> None:
    snapshot = make_snapshot("secret")
    tenant = snapshot.seen_with(TENANT)
    by_answer = {route.answer: route for route in ROUTES}
    (own,) = by_answer["Quotas"].answer_from(tenant, Ask()).value
    assert (own["name"], own["parent"]) == ("own", None)
    overview = by_answer["Overview"].answer_from(tenant, Ask()).value
    assert overview["gpus"] == by_answer["Overview"].answer_from(snapshot, Ask()).value["gpus"]
    rows = [encode(entry) for entry in tenant.waiting]
    assert sorted(row["names"] == [None] for row in rows) == [False, True]
    mine = next(row for row in rows if row["names"] == ["team-a/mine"])
    assert mine["quotas"] == ["own"]


def test_equal_sights_share_one_view_and_few_are_kept() -> None:
    snapshot = make_snapshot("secret")
    assert snapshot.seen_with(EVERYTHING) is snapshot
    view = snapshot.seen_with(TENANT)
    assert snapshot.seen_with(replace(TENANT)) is view
    for at in range(MOST_SIGHTS):
        snapshot.seen_with(Sight(frozenset({f"n{at}"})))
    assert snapshot.seen_with(TENANT) is not view


def test_more_rights_hide_nothing_that_fewer_showed() -> None:
    snapshot = make_snapshot("secret")
    sights = (
        TENANT,
        Sight(frozenset({"team-a"}), quotas=False, nodes=False),
        Sight(frozenset({"team-a"}), quotas=False),
        Sight(frozenset({"team-a"})),
        EVERYTHING,
    )
    gaps, names = [], []
    for sight in sights:
        view = snapshot.seen_with(sight)
        route = next(route for route in ROUTES if route.answer == "Queue")
        gaps.append(len(head_for(route, view, Ask(), "i", 1.0).gaps))
        names.append(sum(name is not None for e in view.waiting for name in encode(e)["names"]))
    assert gaps == sorted(gaps, reverse=True)
    assert names == sorted(names)
