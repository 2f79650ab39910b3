"""What the page reads of answers is there: its types name no field that no answer has."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.see.scene import make_scene
from tests.see.test_app import HERE, RECORDS
from tests.usage.books import make_book
from tests.usage.instants import between

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.happenings import Happening, StorySource, Subject
from koord.answers.reading import Reading
from koord.answers.remedies import Remedy, RemedyActor, RemedyKind, encode_remedies
from koord.answers.story import Story
from koord.answers.timeline import make_timeline
from koord.answers.usage_report import make_report
from koord.core.model.gang_history import Episode
from koord.see.paging import ListQuery, make_page
from koord.see.route import Ask, WithGaps, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

SOURCES = Path(__file__).parents[2] / "page" / "src"
TYPES = (SOURCES / "answers.ts", SOURCES / "views" / "usage_report.ts")
NOW = 1_790_000_000.0
BY_NAME = {route.answer: route for route in ROUTES}


def read_types() -> dict[str, set[str]]:
    """Return interface -> its fields, with those of what it extends."""
    types: dict[str, set[str]] = {}
    text = "".join(path.read_text(encoding="utf-8") for path in TYPES)
    pattern = r"export interface (\w+)(?:<\w+>)?(?: extends (\w+))? \{\n(.*?)\n\}"
    for name, above, body in re.findall(pattern, text, re.DOTALL):
        types[name] = set(re.findall(r"^  (\w+)\??:", body, re.MULTILINE)) | types.get(above, set())
    return types


class Asked:
    """Answers of a scene, as the server would give them."""

    def __init__(self) -> None:
        self.snapshot = Snapshot(Reading(make_scene(NOW).state), HERE, 1, NOW)

    def ask(self, answer: str, body: dict[str, Any] | None = None, **parts: str) -> Any:
        value = BY_NAME[answer].compute(self.snapshot, Ask(parts, body or {}))
        return value.value if isinstance(value, WithGaps) else value


def make_samples(asked: Asked) -> dict[str, Any]:
    """Return interface -> a document of that form."""
    queue, quota = asked.ask("Queue"), asked.ask("Quota", name="team-a")
    unit = {"namespace": "default", "kind": "podgroup", "name": "moe"}
    explanation = asked.ask("Explanation", **unit)
    node, devices = asked.ask("Node", name="gpu-00"), asked.ask("Devices", name="gpu-00")
    what_if = asked.ask("WhatIf", {"edits": [{"delete": {"ref": "podgroup/default/tune"}}]})
    gap = AnswerGap("nodes", GapCause.NO_RIGHT, "whether there is room")
    head = head_for(BY_NAME["Overview"], asked.snapshot, Ask(), "i", time.time())
    envelope = wrap(head, WithGaps(None, (gap,)))
    remedy = Remedy(RemedyKind.ADD_NODES, RemedyActor.OWNER, "Add it", {"nodes": 1})
    fragmentation, gpu_map = asked.ask("Fragmentation"), asked.ask("Map")
    overview = asked.ask("Overview")
    form = BY_NAME["Queue"].form
    assert form is not None
    return {
        "AsOf": envelope["asOf"],
        "Gap": envelope["gaps"][0],
        "Envelope": envelope,
        "Page": make_page(queue, ListQuery(sort="position"), form, "i"),
        "Turn": form.write(queue[0])["turn"],
        "QueueEntry": form.write(queue[0]),
        "Gpus": overview["gpus"],
        "Overview": overview,
        "Cause": explanation["nodes"][0],
        "NodeOffer": explanation["offers"][0]["nodes"][0],
        "Remedy": encode_remedies((remedy,))["items"][0],
        "Remedies": encode_remedies(()),
        "Explanation": explanation,
        "GangCount": explanation["gang"]["group"][0],
        "Episode": encode(Episode(1, "Placed", "it fits", "")),
        "Quota": asked.ask("Quotas")[0],
        "QuotaInFull": quota,
        "QuotaUser": quota["users"][0],
        "QuotaWait": quota["waits"][0],
        "NodeRow": asked.ask("Nodes")[0],
        "Reservation": asked.ask("Reservations")[0],
        "Finding": asked.ask("Health")[0],
        "NodeInFull": node,
        "PodOnNode": node["pods"][0],
        "Devices": devices,
        "DeviceReport": devices["devices"][0],
        "Device": devices["devices"][0]["devices"][0],
        "GpuMap": gpu_map,
        "MapNode": gpu_map["nodes"][0],
        "Fragmentation": fragmentation,
        "ModelFragmentation": fragmentation["models"][0],
        "Story": encode(Story(Subject("PodGroup", "a", "b"))),
        "Happening": encode(Happening(1, "Placed", "it fits", StorySource.AUDIT)),
        "Entry": encode(make_timeline(asked.snapshot.reading, HERE, RECORDS)[0]),
        "Room": asked.ask("Room", {"shape": "2x8"}),
        "UnitOutcome": what_if["units"][0]["before"],
        "UnitRef": what_if["units"][0]["ref"],
        "WhatIf": what_if,
        **make_usage_samples(),
    }


def make_usage_samples() -> dict[str, Any]:
    usage = encode(make_report(make_book(between("08:00", "09:00"))))
    return {
        "UsageReport": usage,
        "UsageLine": usage["models"][0],
        "UsageQuota": usage["quotas"][0],
        "UsageNamespace": usage["namespaces"][0],
        "UsageUser": usage["users"][0],
        "UsageJob": usage["owners"][0],
        "UsageModel": usage["models"][0],
        "UsageLoss": usage["losses"][0],
        "UsageLoser": usage["losers"][0],
        "UsageCluster": usage["cluster"][0],
    }


FIELDS = read_types()
UNSEEN = {"Loan"}
"""Interfaces of which the scene has no document."""


@pytest.fixture(scope="module")
def samples() -> dict[str, Any]:
    return make_samples(Asked())


def test_every_type_of_the_page_is_compared(samples: dict[str, Any]) -> None:
    assert FIELDS.keys() - UNSEEN == samples.keys()


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - UNSEEN))
def test_answers_have_the_fields_that_the_page_reads(name: str, samples: dict[str, Any]) -> None:
    assert FIELDS[name] <= samples[name].keys()
