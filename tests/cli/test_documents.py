"""The JSON of every command, byte for byte, of invented clusters, and the fields of reasons.

Programs rely on both. ``python -m tests.cli.test_documents`` writes ``documents.json`` and
``reason_fields.json`` again; look at the difference.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, get_args, get_type_hints

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cli.readings import LEADING, NOW, make_condition
from tests.cli.test_overview import make_lease
from tests.cli.test_overview import make_state as make_overview_state
from tests.cluster import make_cluster
from tests.device.test_plugin import gpu_cluster, part, settle, whole
from tests.objects import upsert_pod_group, upsert_quota, upsert_reservation
from tests.reservation.make import make_reservation
from tests.topology.test_gang_topology import ask, make_members, make_network, must
from typer.testing import CliRunner

import koord.core
from koord.answers.encoding import name_of_field
from koord.answers.reading import (
    Extent,
    Gap,
    Reading,
    ReportedPreemption,
    Target,
    TargetDetails,
    TargetKind,
)
from koord.api.keys import operators
from koord.cli import (
    device_view,
    explain_view,
    preempt_view,
    queue_view,
    quota_view,
    reservation_view,
    status_view,
    top_view,
    topology_view,
)
from koord.cli.find_target import TargetLookup
from koord.cli.leases import make_leader
from koord.cli.main import app
from koord.core.model.gang_history import Episode
from koord.core.model.reasons import Reason
from koord.domains.topology import TOPOLOGIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from koord.core.engine.state import ClusterState

FILE = Path(__file__).with_name("documents.json")
FIELDS = FILE.with_name("reason_fields.json")
READERS = (
    device_view, queue_view, quota_view, reservation_view, top_view, topology_view
)  # fmt: skip
SAID = (
    make_condition(operators.PLACED, "False", "InsufficientNodes"),
    make_condition("QuorumReached", "True", "Reached"),
)


def overview() -> ClusterState:
    state = make_overview_state()
    state.upsert_node(make_node("n1").gpu(8).cpu(8000).taint("team", "b").build())
    upsert_quota(state, make_quota("lender", namespace="q", min={GPU: 8}, max={GPU: 16}))
    upsert_quota(state, make_quota("wrong", namespace="q", min={GPU: 8}, max={GPU: 4}))
    history = (Episode(NOW - 300, "Preempted", "made room", "default/first"),)
    group = make_pod_group("default/told", min_member=2).build()
    upsert_pod_group(state, replace(group, history=history))
    placed = make_pod("told-0").gang("default/told").gpu(1).released("n0", "p1", "default/told", 2)
    state.upsert_pod(placed.running("n0").build())
    state.refresh()
    return state


def topology() -> ClusterState:
    cluster = make_network({"s0": {"a": [8, 8], "b": [8]}, "s1": {"c": [16]}})
    ask(cluster, must("Block"), minimum=3)
    cluster.nodes(make_node("outside").cpu(8000))
    return cluster.pods(*make_members(3)).state


def devices() -> ClusterState:
    cluster = gpu_cluster(2)
    settle(cluster, whole("a", 2))
    settle(cluster, part("b", 30))
    return cluster.state


def reservations() -> ClusterState:
    cluster = make_cluster().nodes(make_node("n1").cpu(16000))
    for reservation in (make_reservation("r"), make_reservation("pending", node="")):
        upsert_reservation(cluster.state, reservation)
    return cluster.pods(make_pod("w-0").labels(app="web").requests(cpu=1000)).state


def preemption() -> ClusterState:
    cluster = make_cluster().nodes(make_node("n1").gpu(8), make_node("n2").gpu(8))
    for name, node in (("low-1", "n1"), ("low-2", "n2")):
        cluster.pods(make_pod(name).gpu(8).released(node, "p").running(node))
    cluster.gang("high", 2)
    for at in range(2):
        cluster.pods(make_pod(f"high-{at}").gang("default/high").gpu(8).priority(10))
    return cluster.state


COMMANDS: dict[str, Callable[[], ClusterState]] = {
    "queue": overview,
    "top": overview,
    "top quotas": overview,
    "explain node/n0": overview,
    "quota tree": overview,
    "quota explain team": overview,
    f"quota what-if team --pods 2 -r {GPU}=8 --max {GPU}=16": overview,
    f"quota what-if team --max {GPU}=4": overview,
    "explain pod/first": overview,
    "explain pod/run": overview,
    "explain podgroup/big": overview,
    "explain podgroup/half": overview,
    "explain podgroup/told": overview,
    "explain podgroup/job": topology,
    "topology": topology,
    "devices": devices,
    "devices n0": devices,
    "reservation list": reservations,
    "reservation explain r --pod default/w-0": reservations,
    "preempt podgroup/high --dry-run": preemption,
    "preempt pod/low-1 --dry-run": preemption,
    "status": overview,
}


def write(command: str, patch: pytest.MonkeyPatch, form: str = "json") -> str:
    """Return what a command writes of its cluster."""
    reading = Reading(
        COMMANDS[command](),
        TargetDetails({condition.type: condition for condition in SAID}),
        (Gap(TOPOLOGIES, Extent.NOTHING),) if "told" in command else (),
        preemption=ReportedPreemption(enabled=False),
        leader=LEADING,
    )
    target = Target(TargetKind.POD, "default", "")
    leader = make_leader(
        make_lease(version="1.0", ready=0, blocked=3, reasons={"X": 3}, open_count=1), NOW
    )

    async def explain(question: explain_view.Question, _: float) -> tuple[TargetLookup, Reading]:
        named = Target(question.kind, "default", question.name)
        return TargetLookup(named, named), reading

    async def preempt(question: explain_view.Question, _: float) -> tuple[Target, Reading, tuple]:
        return Target(question.kind, "default", question.name), reading, ()

    async def leases(*_: str) -> tuple[list, list, bool]:
        return [leader], [], True

    for module in READERS:
        patch.setattr(module, "read_without_target", lambda *_: (reading, target))
    patch.setattr(explain_view, "_read", explain)
    patch.setattr(preempt_view, "_read", preempt)
    patch.setattr(status_view, "_read", leases)
    patch.setattr(queue_view, "read_suspended", lambda *_: [])
    patch.setattr(time, "time", lambda: NOW)
    done = CliRunner().invoke(app, [*command.split(), "-o", form])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_documents_are_as_recorded(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write(command, monkeypatch)
    recorded = json.loads(FILE.read_text("utf-8"))[command]
    assert written == json.dumps(recorded, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_an_envelope_holds_the_same_document(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    envelope = json.loads(write(command, monkeypatch, "answer"))
    recorded = json.loads(FILE.read_text("utf-8"))[command]
    assert list(envelope) == ["answer", "version", "asOf", "gaps", "value"]
    assert json.dumps(envelope["value"]) == json.dumps(recorded)
    assert envelope["answer"].isalpha()
    assert envelope["version"] == "v1alpha1"
    as_of = envelope["asOf"]
    assert as_of["source"] == "Once"
    assert as_of["at"].endswith("Z")


def list_reasons(above: type = Reason) -> Iterator[type[Reason]]:
    for kind in above.__subclasses__():
        yield kind
        yield from list_reasons(kind)


def list_fields(kind: type, path: str = "") -> Iterator[str]:
    """Yield the JSON paths of the fields of a class, and of those that its fields hold."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name = f"{path}.{name_of_field(kind, field.name)}".removeprefix(".")
        yield name
        for inner in find_dataclasses(hints[field.name]):
            yield from list_fields(inner, name)


def find_dataclasses(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield from (hint, *hint.__subclasses__())
    for argument in get_args(hint):
        yield from find_dataclasses(argument)


def list_reason_fields() -> dict[str, list[str]]:
    for module in walk_packages(koord.core.__path__, "koord.core."):
        import_module(module.name)
    kinds = [kind for kind in list_reasons() if kind.__module__.startswith("koord.core")]
    return {
        str(kind.code): sorted(set(list_fields(kind)))
        for kind in sorted(kinds, key=lambda kind: str(getattr(kind, "code", "")))
        if dataclasses.is_dataclass(kind) and isinstance(getattr(kind, "code", None), str)
    }


def test_fields_of_reasons_keep_their_names() -> None:
    recorded = json.loads(FIELDS.read_text("utf-8"))
    written = list_reason_fields()
    gone = {code: sorted({*recorded[code]} - {*written.get(code, ())}) for code in recorded}
    assert {code: names for code, names in gone.items() if names} == {}


if __name__ == "__main__":
    documents = {}
    for name in COMMANDS:
        with pytest.MonkeyPatch.context() as context:
            documents[name] = json.loads(write(name, context))
    FILE.write_text(json.dumps(documents, indent=1, ensure_ascii=False) + "\n", "utf-8")
    FIELDS.write_text(json.dumps(list_reason_fields(), indent=1) + "\n", "utf-8")
