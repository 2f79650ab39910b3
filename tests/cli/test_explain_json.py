"""The JSON has the documented fields."""

import json
import re
from pathlib import Path

from tests.builders import GPU, make_node, make_pod, make_pod_group
from tests.cli.readings import SINCE, ask_gang, ask_pod, make_condition, make_reading

from koord.answers.encoding import encode
from koord.api.keys import operators
from koord.cli.output import to_json

A = "default/a"
PAGE = Path(__file__).parents[2] / "docs" / "explain-json.md"


def load(answer):
    return json.loads(to_json(encode(answer)))


def test_a_pod_that_waits() -> None:
    pod = make_pod("w-0").gpu(8).requests(cpu=500, memory=1 << 30).created(60.0).build()
    condition = make_condition(operators.PLACED, "False", "InsufficientNodes")
    nodes = [make_node("n").gpu(4).build(), make_node("o").gpu(8).taint("team", "b").build()]
    document = load(ask_pod(make_reading(pod, *nodes, conditions=[condition])))
    offers = document.pop("offers")
    advice = document.pop("advice")
    reason = document.pop("reason")
    assert document == {
        "kind": "Pod",
        "namespace": "default",
        "name": "w-0",
        "standing": "Waiting",
        "since": SINCE,
        "waits": None,
        "reported": {
            "condition": operators.PLACED,
            "status": "False",
            "reason": "InsufficientNodes",
            "message": "said",
            "since": SINCE,
        },
        "place": None,
        "gang": None,
        "network": None,
        "notAsked": 0,
        "add": None,
        "warnings": [],
        "history": [],
        "notes": [],
        "dominant": {
            "code": "InsufficientNodes",
            "class": "Room",
            "sentence": "No room for default/w-0.",
        },
        "nodes": [
            {"cause": "Insufficient", "nodes": 1, "examples": ["n"]},
            {"cause": "UntoleratedTaint", "nodes": 1, "examples": ["o"]},
        ],
        "owner": None,
        "remedies": None,
    }
    assert reason["code"] == "InsufficientNodes"
    assert reason["fields"]["moreNodes"] == 0
    assert reason["fields"]["refused"][0].keys() == {"refusal", "nodes", "resource", "detail"}
    assert all(isinstance(sentence, str) for sentence in advice)
    assert offers == [
        {
            "pods": 1,
            "requests": {"cpu": "500m", "memory": "1Gi", GPU: "8", "pods": "1"},
            "fit": 0,
            "nodes": [
                {
                    "node": "n",
                    "pods": 0,
                    "refusal": "Insufficient",
                    "detail": None,
                    "short": [{"resource": GPU, "asked": "8", "free": "4"}],
                },
                {
                    "node": "o",
                    "pods": 0,
                    "refusal": "UntoleratedTaint",
                    "detail": "team: b",
                    "short": [],
                },
            ],
        }
    ]


def test_a_gang() -> None:
    group = make_pod_group(A, 2).build()
    document = load(ask_gang(make_reading(group, make_pod("w-0").gang(A).build())))
    assert (document["kind"], document["since"]) == ("PodGroup", None)
    assert document["gang"]["group"] == [
        {"gang": A, "present": 1, "minMember": 2, "waitingOnly": False, "strangers": 0, "done": 0}
    ]
    assert document["gang"]["members"]["held"] == 1
    assert document["gang"]["ignored"] == []


def test_a_pod_with_a_place() -> None:
    pod = make_pod("w-0").released("n", "p1", A, 4).running("n").build()
    assert load(ask_pod(make_reading(pod)))["place"] == {
        "node": "n",
        "isBound": True,
        "planId": "p1",
        "group": A,
        "memberCount": 4,
    }


def test_every_field_is_on_the_page() -> None:
    pod = make_pod("w-0").released("n", "p1", A, 4).running("n").gang(A).build()
    group = make_pod_group(A, 2).build()
    documented = set(re.findall(r"^\| `([a-zA-Z]+)", PAGE.read_text("utf-8"), flags=re.MULTILINE))
    assert set(load(ask_pod(make_reading(pod, group)))) <= documented
