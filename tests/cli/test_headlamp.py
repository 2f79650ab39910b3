"""The plugin for Headlamp asks what is served, and shows it as text; Headlamp is a stand-in."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cli.readings import make_reading

from koord.answers.explain import PlacementState
from koord.answers.reading import Target, TargetKind
from koord.api.keys import operators
from koord.see.app import BASE
from koord.see.paging import make_page, parse_query
from koord.see.route import Ask, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

PLUGIN = Path(__file__).parents[2] / "examples/headlamp"
SCRIPT = (PLUGIN / "main.js").read_text(encoding="utf-8")
HERE = Target(TargetKind.POD, "team-a", "")
ODD = "a\u202eb"


def test_what_headlamp_looks_for_is_there() -> None:
    package = json.loads((PLUGIN / "package.json").read_text(encoding="utf-8"))
    assert package["devDependencies"].keys() == {"@kinvolk/headlamp-plugin"}
    assert (PLUGIN / package["main"]).is_file()


def test_it_asks_for_what_is_served() -> None:
    assert f'"{BASE}"' in SCRIPT
    paths = {route.path for route in ROUTES if route.method == "GET"}
    assert {"queue", "namespaces/{namespace}/explanations/{kind}/{name}"} <= paths
    assert {operators.PLACEMENT_GATE, operators.SCHEDULER_NAME} <= set(
        re.findall(r'"([^"]*)"', SCRIPT)
    )
    (states,) = re.findall(r"WAITING = new Set\(\[(.*?)\]\)", SCRIPT)
    assert set(re.findall(r'"(\w+)"', states)) <= {str(state) for state in PlacementState}
    for never in ("innerHTML", "eval(", "fetch(", "XMLHttpRequest"):
        assert never not in SCRIPT


def answer(title: str, **parts: str) -> Any:
    """Return what is served of a cluster in which a gang and pods wait."""
    route = next(route for route in ROUTES if route.answer == title)
    objects = [make_node("n1").gpu(4).build(), make_pod_group("team-a/train", 2).build()]
    objects += [make_pod(f"team-a/train-{n}").gang("team-a/train").gpu(8).build() for n in (0, 1)]
    snapshot = Snapshot(make_reading(*objects), HERE, 1, 1.0)
    question = Ask(parts)
    told = route.answer_from(snapshot, question)
    document = wrap(head_for(route, snapshot, question, "i", 1.0), told)
    if route.form is not None:
        page = make_page(told.value, parse_query({}, route.form, "i"), route.form, "i")
        document["value"] = page
    return document


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_it_shows_why_something_waits_and_the_queue() -> None:
    queue = answer("Queue")
    queue["value"]["items"][0]["names"] = [ODD, None]
    path = f"{BASE}/namespaces/team-a/explanations"
    own = {"schedulerName": operators.SCHEDULER_NAME}
    given = {
        "script": str(PLUGIN / "main.js"),
        "objects": [
            {"apiVersion": api, "kind": kind, "metadata": {"namespace": "team-a", "name": name}}
            | {"spec": spec}
            for api, kind, name, spec in (
                ("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", "train", {}),
                ("batch/v1", "Job", "train", {}),
                ("v1", "Pod", "gone", own),
                ("v1", "Pod", "foreign", {}),
                ("v1", "Service", "train", {}),
            )
        ],
        "answers": {
            f"{path}/podgroup/train": answer(
                "Explanation", namespace="team-a", kind="podgroup", name="train"
            ),
            f"{path}/pod/train-0": answer(
                "Explanation", namespace="team-a", kind="pod", name="train-0"
            ),
            "/api/v1/namespaces/team-a/pods": {"items": [{"metadata": {"name": "train-0"}}]},
            f"{BASE}/queue": queue,
        },
    }
    run = subprocess.run(
        ["node", str(Path(__file__).with_name("headlamp.mjs"))],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    shown = json.loads(run.stdout)
    group, job, gone, foreign, service = shown["details"]
    for section in (group, job):
        rows = {row["name"]: row["value"] for row in section["children"][0]["rows"]}
        assert rows["State"] == "Waiting"
        assert "8" in rows["Why"]
    assert "cannot be asked" in gone["children"][0]
    assert (foreign, service) == (None, None)
    (row,) = shown["page"]["children"][0]["rows"]
    assert row[1] == "a\\u{202e}b, a gang in another namespace"
    # A refusal of koord is none of Headlamp's logins.
    assert {each["logsOut"] for each in shown["asked"]} == {False}
    assert {each["cluster"] for each in shown["asked"]} == {"c", None}
