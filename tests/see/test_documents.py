"""Answers have the fields that the OpenAPI document says, and no others: it types the page."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from tests.see.scene import make_scene
from tests.see.test_app import HERE, RECORDS
from tests.support.json_schema import Schemas
from tests.usage.books import make_book
from tests.usage.instants import between
from tools.page_types import PATH, make_types

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.happenings import Happening, StorySource, Subject
from koord.answers.reading import Reading
from koord.answers.redaction import Sight
from koord.answers.remedies import Remedy, RemedyActor, RemedyKind, encode_remedies
from koord.answers.story import Phase, PhaseSpan, Story
from koord.answers.timeline import make_timeline
from koord.answers.usage_report import make_report
from koord.core.model.gang_history import Episode
from koord.see.app import BASE
from koord.see.openapi import make_document
from koord.see.paging import ListQuery, make_page
from koord.see.route import Ask, WithGaps, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

NOW = 1_790_000_000.0
BY_NAME = {route.answer: route for route in ROUTES}
UNIT = {"namespace": "default", "kind": "podgroup", "name": "moe"}
DELETE = {"edits": [{"delete": {"ref": "podgroup/default/tune"}}]}


def test_the_types_of_the_page_are_those_of_the_document() -> None:
    assert PATH.read_text(encoding="utf-8") == make_types(), "run tools/page_types.py"


def make_strict(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose objects have no other fields than it names."""
    strict = copy.deepcopy(document)
    for schema in strict["components"]["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = {"enum": []}
    return strict


DOCUMENT = make_document(ROUTES, BASE)
STRICT = Schemas(make_strict(DOCUMENT))


def find_problems(answer: str, envelope: object) -> list[str]:
    operation = next(
        operation
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        if operation["operationId"] == answer
    )
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    return list(STRICT.problems(json.loads(json.dumps(envelope)), schema))


class Asked:
    """Answers of a scene, as the server would give them."""

    def __init__(self, sight: Sight | None = None) -> None:
        whole = Snapshot(Reading(make_scene(NOW).state), HERE, 1, NOW)
        self.snapshot = whole if sight is None else whole.seen_with(sight)

    def ask(self, answer: str, body: dict[str, Any] | None = None, **parts: str) -> Any:
        route = BY_NAME[answer]
        value = route.compute(self.snapshot, Ask(parts, body or {}))
        value = value.value if isinstance(value, WithGaps) else value
        if route.form is not None:
            sort = next(iter(route.form.sorts))
            value = make_page(value, ListQuery(sort=sort), route.form, "i")
        return self.wrap(answer, value)

    def wrap(self, answer: str, value: Any) -> Any:
        gap = AnswerGap("nodes", GapCause.NO_RIGHT, "whether there is room")
        head = head_for(BY_NAME[answer], self.snapshot, Ask(), "i", time.time())
        return wrap(head, WithGaps(value, (gap,)))


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked()


QUESTIONS: tuple[tuple[str, dict[str, Any] | None, dict[str, str]], ...] = (
    ("Overview", None, {}),
    ("Queue", None, {}),
    ("Explanation", None, UNIT),
    ("Quotas", None, {}),
    ("Quota", None, {"name": "team-a"}),
    ("Namespaces", None, {}),
    ("Fragmentation", None, {}),
    ("Health", None, {}),
    ("Nodes", None, {}),
    ("Node", None, {"name": "gpu-00"}),
    ("Map", None, {}),
    ("Devices", None, {"name": "gpu-00"}),
    ("Reservations", None, {}),
    ("Decisions", None, {}),
    ("AuditReport", None, {}),
    ("Room", {"shape": "2x8"}, {}),
    ("Room", {"shape": "400x8"}, {}),
    ("WhatIf", DELETE, {}),
)


@pytest.mark.parametrize(("answer", "body", "parts"), QUESTIONS)
def test_answers_are_as_the_document_says(asked, answer, body, parts) -> None:
    assert find_problems(answer, asked.ask(answer, body, **parts)) == []


def test_names_that_are_hidden_are_null() -> None:
    restricted = Asked(Sight(namespaces=frozenset({"default"}), quotas=False, nodes=False))
    for answer, parts in (("Overview", {}), ("Queue", {}), ("Explanation", UNIT)):
        assert find_problems(answer, restricted.ask(answer, **parts)) == []


def test_what_the_scene_has_none_of(asked) -> None:
    remedy = Remedy(RemedyKind.ADD_NODES, RemedyActor.OWNER, "Add it", {"nodes": 1})
    happening = Happening(1, "Placed", "it fits", StorySource.AUDIT)
    subject, spans = Subject("PodGroup", "a", "b"), (PhaseSpan(Phase.ROOM, 1),)
    story = Story(subject, (happening,), spans, sources=(StorySource.AUDIT,))
    for answer, value in (
        ("Remedies", encode_remedies((remedy,))),
        ("Story", encode(story)),
        ("UsageReport", encode(make_report(make_book(between("08:00", "09:00"))))),
    ):
        assert find_problems(answer, asked.wrap(answer, value)) == []
    episode = {"$ref": "#/components/schemas/Episode"}
    assert list(STRICT.problems(encode(Episode(1, "Placed", "it fits", "")), episode)) == []
    entries = [encode(entry) for entry in make_timeline(asked.snapshot.reading, HERE, RECORDS)]
    entry = {"$ref": "#/components/schemas/TimelineEntry"}
    assert entries
    assert [each for each in entries if list(STRICT.problems(each, entry))] == []


def test_the_strict_document_finds_fields_that_it_does_not_name(asked) -> None:
    answer = asked.ask("Overview")
    answer["value"]["gpus"]["more"] = 1
    assert find_problems("Overview", answer) == ["$.value.gpus.more: 1 is none of []"]
