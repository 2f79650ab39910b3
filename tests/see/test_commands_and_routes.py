"""One value: a route answers what the command of the same question prints, byte for byte."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pytest
from tests.see.scene import make_scene
from typer.testing import CliRunner

from koord.answers.reading import Reading, Target, TargetKind
from koord.cli import (
    device_view,
    explain_view,
    queue_view,
    quota_view,
    reservation_view,
    room_view,
    sick_view,
    top_view,
    topology_view,
    what_if_view,
)
from koord.cli.find_target import TargetLookup
from koord.cli.main import app
from koord.core.model.text import format_time
from koord.see.manifests import ServerDefaults
from koord.see.route import Ask
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = 1_790_000_000.0
HERE = Target(TargetKind.POD, "default", "")
GANG = {"namespace": "default", "kind": "podgroup", "name": "moe"}
READERS = (
    device_view, queue_view, quota_view, reservation_view, room_view, sick_view, top_view,
    topology_view, what_if_view,
)  # fmt: skip
Case: TypeAlias = "tuple[str, Mapping[str, str], Mapping[str, Any], str, str]"
CASES: tuple[Case, ...] = (
    ("Queue", {}, {}, "queue", "waiting"),
    ("Explanation", GANG, {}, "explain podgroup/moe", ""),
    ("Explanation", {**GANG, "name": "half"}, {}, "explain podgroup/half", ""),
    ("Explanation", {**GANG, "kind": "pod", "name": "bert-0"}, {}, "explain pod/bert-0", ""),
    ("Remedies", GANG, {}, "explain podgroup/moe --verify", "remedies"),
    ("Quotas", {}, {}, "quota tree", "quotas"),
    ("Quota", {"name": "team-a"}, {}, "quota explain team-a", ""),
    ("Fragmentation", {}, {}, "fragments", ""),
    ("Health", {}, {}, "sick", "items"),
    ("Nodes", {}, {}, "top", "nodes"),
    ("Node", {"name": "gpu-00"}, {}, "explain node/gpu-00", ""),
    ("Devices", {"name": "gpu-00"}, {}, "devices gpu-00", ""),
    ("Reservations", {}, {}, "reservation list", "reservations"),
    ("Topology", {"name": "default"}, {}, "topology default", ""),
    ("Room", {}, {"shape": "4x8"}, "room 4x8", ""),
    ("Room", {}, {"shape": "2x4", "quota": "team-c"}, "room 2x4 --quota team-c", ""),
    (
        "WhatIf",
        {},
        {"edits": [{"drain": {"nodes": ["gpu-05"]}}]},
        "what-if --drain gpu-05",
        "",
    ),
)
"""A route, parts of its path, its body, the command, and the part of its document (all of it)."""
NO_COMMAND = {"Overview", "Map", "Decisions", "Namespaces"}
OF_RECORDS = {"Story", "AuditReport", "UsageReport"}
"""Their commands read records, not the cluster."""


def read() -> Reading:
    state = make_scene(NOW).state
    state.refresh()
    return Reading(state)


def ask_route(name: str, parts: Mapping[str, str], body: Mapping[str, Any]) -> Any:
    route = next(route for route in ROUTES if route.answer == name)
    snapshot = Snapshot(read(), HERE, 1, NOW)
    value = route.answer_from(snapshot, Ask(parts, body)).value
    return value if route.form is None else [route.form.write(row) for row in value]


def ask_command(command: str, patch: pytest.MonkeyPatch) -> Any:
    reading = read()

    async def explain(question: explain_view.Question, _: float) -> tuple[TargetLookup, Reading]:
        named = Target(question.kind, "default", question.name)
        return TargetLookup(named, named), reading

    for module in READERS:
        patch.setattr(module, "read_without_target", lambda *_: (reading, HERE))
    patch.setattr(explain_view, "_read", explain)
    patch.setattr(queue_view, "read_suspended", lambda *_: [])
    patch.setattr(top_view, "find_offer", lambda *_: None)
    defaults = ServerDefaults("default", format_time(NOW), None)
    patch.setattr(what_if_view, "read_defaults", lambda *_: defaults)
    patch.setattr(time, "time", lambda: NOW)
    done = CliRunner().invoke(app, [*command.split(), "-o", "json"])
    assert done.exit_code == 0, done.output
    return msgspec.json.decode(done.stdout)


def write(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[3])
def test_a_route_answers_as_its_command_byte_for_byte(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, parts, body, command, part = case
    document = ask_command(command, monkeypatch)
    told = document[part] if part else document
    assert write(ask_route(name, parts, body)) == write(told)


def test_no_route_is_left_out() -> None:
    asked = {case[0] for case in CASES}
    assert {route.answer for route in ROUTES} == asked | NO_COMMAND | OF_RECORDS
