"""Which questions can be asked over HTTP, and which answers they get: one table.

A route computes the value that the command of the same name prints with ``--output json``. Knows
no HTTP: what is asked comes as values, and what is wrong with it is an exception.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from time import monotonic
from typing import Any, Final

from koord.answers.audit import to_text
from koord.answers.audit_analysis import AuditAnalysis, AuditScope
from koord.answers.audit_report import AuditReport, hide_names
from koord.answers.devices import view_devices
from koord.answers.edits import MOST_EDITS, EditError
from koord.answers.encoding import encode, name_of_field
from koord.answers.envelope import AnswerGap, AnswerHead, GapCause
from koord.answers.fragmentation import Fragmentation, view_fragmentation
from koord.answers.gaps import head_of
from koord.answers.gpu_map import GpuMap, MapNode, view_map
from koord.answers.happenings import Subject
from koord.answers.health import HealthFinding, encode_finding, find_sick, see_sick
from koord.answers.outcomes import view_outcomes
from koord.answers.outlook import limit_time
from koord.answers.overview import Overview, view_overview
from koord.answers.queue_view import QueueEntry
from koord.answers.quota_view import QuotaView, encode_in_full, view_quota, view_quotas
from koord.answers.reading import (
    KindName,
    Target,
    TargetKind,
    TargetNotFoundError,
    describe_missing,
)
from koord.answers.redaction import HiddenName, redact
from koord.answers.remedies import RemedyActor, encode_remedies
from koord.answers.remedy_search import verify
from koord.answers.reservations import ReservationUsage, view_reservation
from koord.answers.room import RoomQuestion, ShapeRoom, find_room
from koord.answers.story import hide_others
from koord.answers.timeline import TimelineEntry, make_timeline
from koord.answers.topology import TopologyCapacity, view_topology
from koord.answers.usage_view import NodeUsage, view_nodes, view_pod
from koord.answers.what_if import WhatIfAnswer, ask_what_if
from koord.answers.why import Explanation, make_answer
from koord.api.quantity import parse_age_seconds
from koord.core.defrag.shapes import MOST_GPUS, MOST_PODS, parse_shape
from koord.core.device.plugin import Devices
from koord.core.engine.scoring import Scoring
from koord.core.model.reasons import class_of
from koord.core.model.text import format_time
from koord.core.reservation.plugin import Reservations
from koord.core.usage.segments import Window
from koord.kube.errors import KubeError
from koord.see.edit_forms import EditForms, split_subject
from koord.see.manifests import ServerDefaults
from koord.see.paging import InvalidQuery, ListForm, Row
from koord.see.snapshots import Gaps, Records, Snapshot
from koord.store.analysis import StoredAnalysis
from koord.store.errors import StoreError
from koord.store.reading import MOST_MS

log = logging.getLogger(__name__)

KINDS: Final = {
    "pod": TargetKind.POD,
    "podgroup": TargetKind.POD_GROUP,
    "reservation": TargetKind.RESERVATION,
}
"""Kinds in paths, of what the planner decides about."""


_PLANS_NEED: Final = (KindName.NODES, KindName.PODS, KindName.POD_GROUPS, KindName.QUOTAS)
"""What must be known as a whole before quotas and jobs are planned."""
MOST_ENTRIES: Final = 4000
"""Things that happened, of one answer: the last ones."""
_TRIAL_SECONDS: Final = 1.0
"""What trying may take, until it ends with what it has."""


class NothingThere(LookupError):  # noqa: N818 - says what is wrong
    """What was asked about does not exist, or is not the asker's to see."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What was asked, besides the route: parts of the path by name, and the body."""

    parts: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WithGaps:
    """A value, and what is missing in it beside what could not be read."""

    value: Any
    gaps: tuple[AnswerGap, ...] = ()


def _with_gaps(value: Any) -> WithGaps:
    return value if isinstance(value, WithGaps) else WithGaps(value, ())


@dataclass(frozen=True, slots=True)
class Route:
    """A question. ``path`` is below the base path, its variable parts in braces.

    ``compute`` returns the value, perhaps ``WithGaps``, or the rows of a list with ``form``. It may
    raise ``NothingThere`` and ``InvalidQuery``. ``value`` is the type of the value, or of one row.
    """

    answer: str
    path: str
    summary: str
    compute: Callable[[Snapshot, Ask], Any]
    value: type
    form: ListForm | None = None
    body: Mapping[str, str] = field(default_factory=dict)
    """Fields of the body of a POST, and what they mean; a GET has none."""
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of those fields that are no texts."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Parameters of a GET that is no list, and what they mean."""
    begin: Callable[[Snapshot, Ask], Callable[[], WithGaps]] | None = None
    """Does what ``compute`` does in two parts: what it returns takes long, and needs no state."""
    is_kept: bool = True
    """Whether all who ask about one snapshot get one answer; only of a GET."""

    @property
    def plans(self) -> bool:
        """Whether an answer takes a plan of its own, so that few are asked for at a time."""
        return bool(self.body) or self.answer in {"Explanation", "Remedies", "AuditReport"}

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"

    def answer_from(self, snapshot: Snapshot, ask: Ask) -> WithGaps:
        """Return what ``compute`` does, computed once per snapshot where that may be."""
        if self.body or not self.is_kept:
            return _with_gaps(self.compute(snapshot, ask))
        key = (self.answer, *sorted(ask.parts.items()))
        return snapshot.keep(key, lambda: _with_gaps(self.compute(snapshot, ask)))


def head_for(route: Route, snapshot: Snapshot, ask: Ask, instance: str, now: float) -> AnswerHead:
    """Return the envelope of an answer at ``now``, which says how old it is."""
    head = head_of(route.answer, snapshot.reading, _target_of(snapshot, ask))
    lag = max(0, int(now - snapshot.at))
    return replace(head, at=snapshot.at, state=snapshot.number, instance=instance, lag=lag)


def wrap(head: AnswerHead, answer: WithGaps) -> dict[str, Any]:
    """Return an answer in its envelope."""
    return replace(head, gaps=(*head.gaps, *answer.gaps)).wrap(answer.value)


def _target_of(snapshot: Snapshot, ask: Ask) -> Target:
    kind, parts = KINDS.get(ask.parts.get("kind", "")), ask.parts
    if kind is None:
        return snapshot.target
    return Target(kind, parts["namespace"], parts["name"])


def _overview(snapshot: Snapshot, _: Ask) -> Any:
    view = view_overview(snapshot.reading.state, snapshot.waiting, snapshot.at)
    return encode(replace(view, over=redact(view, snapshot.reading.sight.hide).over))


def _queue(snapshot: Snapshot, _: Ask) -> tuple[QueueEntry, ...]:
    return snapshot.waiting


def _explain(snapshot: Snapshot, ask: Ask) -> Explanation:
    target = _target_of(snapshot, ask)
    if target is snapshot.target:
        raise NothingThere(f"{ask.parts['kind']!r} is none of {', '.join(KINDS)}")
    if snapshot.explained is not None and snapshot.explained.target == target:
        return snapshot.explained  # who asks why mostly asks next what would help
    details = snapshot.reading.all_details.get((target.kind, target.title))
    try:
        answer = make_answer(replace(snapshot.reading, details=details), target, snapshot.at)
    except TargetNotFoundError as error:
        raise NothingThere(str(error)) from None
    snapshot.explained = answer
    return answer


def _explanation(snapshot: Snapshot, ask: Ask) -> Any:
    return encode(_explain(snapshot, ask))


def _remedies(snapshot: Snapshot, ask: Ask) -> Any:
    is_over = limit_time(_TRIAL_SECONDS, monotonic)
    answer, gaps = verify(snapshot.reading, _explain(snapshot, ask), is_over)
    sees_nodes = snapshot.reading.sight.nodes
    remedies = (
        remedy
        for remedy in answer.remedies or ()
        if sees_nodes or remedy.by is not RemedyActor.CLUSTER_ADMIN  # these name nodes
    )
    return WithGaps(encode_remedies(tuple(remedies)), gaps)


def _story(snapshot: Snapshot, ask: Ask) -> Any:
    kind, namespace, name = (ask.parts[part] for part in ("kind", "namespace", "name"))
    source = snapshot.on_demand
    if source is None or KINDS.get(kind) not in {TargetKind.POD, TargetKind.POD_GROUP}:
        raise NothingThere(f"what happened to a {kind} is not told here")
    if not snapshot.reading.sight.sees(namespace):
        target = Target(KINDS[kind], namespace, name)
        raise NothingThere(describe_missing(snapshot.reading, target, ()))
    try:
        story, gaps = source.tell(Subject(str(KINDS[kind]), namespace, name))
    except KubeError as error:
        raise NothingThere(f"it cannot be told now: {error}") from None
    if not story.traces:
        raise NothingThere(f"nothing of the name {name} exists in namespace {namespace}")
    return WithGaps(encode(hide_others(story, snapshot.reading.sight)), gaps)


def _audit_report(snapshot: Snapshot, ask: Ask) -> WithGaps:
    return _begin_audit_report(snapshot, ask)()


def _begin_audit_report(snapshot: Snapshot, ask: Ask) -> Callable[[], WithGaps]:
    sight, params, source = snapshot.reading.sight, ask.params, snapshot.on_demand
    seconds = parse_age_seconds(params.get("since", "24h"))
    if seconds is None or seconds * 1000 > MOST_MS:
        raise InvalidQuery("since: is not an age up to 31d, such as 90m, 24h or 7d")
    scope = AuditScope(params.get("namespace", ""), params.get("quota", ""))
    if scope.namespace and not sight.sees(scope.namespace):
        raise NothingThere(f"there is no namespace {scope.namespace}, or you may not see it")
    if scope.quota and not sight.sees_quota(scope.quota):
        raise NothingThere(f"there is no ElasticQuota {scope.quota}, or you may not see it")
    analyse = None if source is None else source.analyse
    window = Window(int((snapshot.at - seconds) * 1000), int(snapshot.at * 1000))

    def report() -> WithGaps:
        try:
            stored = _analyse_nothing(window, scope) if analyse is None else analyse(seconds, scope)
        except StoreError as error:
            log.warning("The store cannot be read", extra={"problem": str(error)})
            stored = _analyse_nothing(window, scope)
        return WithGaps(encode(hide_names(stored.report, sight)), stored.gaps)

    return report


def _analyse_nothing(window: Window, scope: AuditScope) -> StoredAnalysis:
    gap = AnswerGap("records of decisions", GapCause.NO_FEED, "where waiting time went")
    return StoredAnalysis(AuditAnalysis(window, scope).report(), (gap,))


_AUDIT_PARAMS: Final = {
    "since": "How far to look back: 90m, 24h or 7d; 31d at most, 24h by default.",
    "namespace": "Only units of this namespace.",
    "quota": "Only units of this quota.",
}


def _decisions(snapshot: Snapshot, _: Ask) -> Any:
    records, gaps = _list_records(snapshot)
    entries = make_timeline(snapshot.reading, snapshot.target, records)
    if len(entries) > MOST_ENTRIES:
        before = AnswerGap(
            "older records",
            GapCause.TOO_MANY,
            f"what was before {to_text(entries[-MOST_ENTRIES].at)}",
        )
        gaps = (*gaps, before)
    return WithGaps([encode(entry) for entry in entries[-MOST_ENTRIES:]], gaps)


def _list_records(snapshot: Snapshot) -> tuple[Records, Gaps]:
    unread = AnswerGap("records of decisions", GapCause.NO_FEED, "what was decided")
    if snapshot.on_demand is None:
        return (), (unread,)
    try:
        return snapshot.on_demand.list_records()
    except KubeError:
        return (), (unread,)


def _quotas(snapshot: Snapshot, _: Ask) -> list[Row]:
    sight = snapshot.reading.sight
    return [
        encode(redact(quota, sight.hide))
        for quota in view_quotas(snapshot.reading.state).quotas
        if sight.sees_quota(quota.summary.name)
    ]


def _quota(snapshot: Snapshot, ask: Ask) -> Any:
    sight, name = snapshot.reading.sight, ask.parts["name"]
    is_seen = sight.sees_quota(name)
    view = view_quota(snapshot.reading.state, name, Scoring()) if is_seen else None
    if view is None:
        or_hidden = "" if sight.quotas else ", or you may not see it"
        raise NothingThere(f"there is no ElasticQuota {name} in force{or_hidden}")
    return encode_in_full(redact(view, sight.hide))


def _fragmentation(snapshot: Snapshot, _: Ask) -> Any:
    return encode(Fragmentation(view_fragmentation(snapshot.reading.state)))


def _health(snapshot: Snapshot, _: Ask) -> list[Row]:
    source = snapshot.on_demand
    own = () if source is None else source.find_trouble()
    findings = (*own, *find_sick(snapshot.reading.state, snapshot.at))
    findings = see_sick(findings, snapshot.reading.sight)
    return [encode_finding(finding) for finding in findings]


def _nodes(snapshot: Snapshot, _: Ask) -> list[Row]:
    if not snapshot.reading.sight.nodes:
        return []
    return [_write_node(snapshot, node) for node in view_nodes(snapshot.reading.state)]


def _write_node(snapshot: Snapshot, usage: NodeUsage) -> dict[str, Any]:
    tenants = filter(snapshot.reading.sight.sees, usage.tenants)
    return {**encode(usage), "tenants": list(tenants)}


def _node(snapshot: Snapshot, ask: Ask) -> Any:
    _refuse_hidden_nodes(snapshot, "what a node has")
    state, name = snapshot.reading.state, ask.parts["name"]
    usage = next((each for each in view_nodes(state) if each.node.name == name), None)
    if usage is None:
        raise NothingThere(f"there is no node {name}")
    hide = snapshot.reading.sight.hide
    pods = [encode(redact(view_pod(state, pod), hide)) for pod in usage.pods]
    return {**_write_node(snapshot, usage), "pods": pods}


def _map(snapshot: Snapshot, _: Ask) -> Any:
    _refuse_hidden_nodes(snapshot, "who has which GPU")
    view = view_map(snapshot.reading.state, snapshot.reading.sight)
    return {**encode(replace(view, nodes=())), "nodes": _encode_alike(view.nodes)}


def _encode_alike(values: Sequence[MapNode]) -> list[Row]:
    """Encode thousands of values of one class, which have only texts, numbers and lists of them."""
    names = [(each.name, name_of_field(MapNode, each.name)) for each in fields(MapNode)]
    return [{name: getattr(value, attribute) for attribute, name in names} for value in values]


def _devices(snapshot: Snapshot, ask: Ask) -> Any:
    _refuse_hidden_nodes(snapshot, "what a node has")
    state, name = snapshot.reading.state, ask.parts["name"]
    if name not in state.plugin(Devices).reports:
        raise NothingThere(f"there is no Device {name}")
    return {"devices": encode(view_devices(state, [name]))}


def _reservations(snapshot: Snapshot, _: Ask) -> list[Row]:
    state, hide = snapshot.reading.state, snapshot.reading.sight.hide
    return [
        encode(redact(view_reservation(state, reservation, snapshot.at), hide))
        for reservation in state.plugin(Reservations).reservations.values()
    ]


def _topology(snapshot: Snapshot, ask: Ask) -> Any:
    _refuse_hidden_nodes(snapshot, "which domains there are")
    state, name = snapshot.reading.state, ask.parts["name"]
    tree = state.topologies.tree(name) if name in state.topologies else None
    if tree is None:
        raise NothingThere(f"there is no ClusterNetworkTopology {name} in force")
    return encode(view_topology(state, name, tree))


def _refuse_hidden_nodes(snapshot: Snapshot, what: str) -> None:
    """Refuse what names nodes to whoever may not list them. May raise ``NothingThere``."""
    if not snapshot.reading.sight.nodes:
        raise NothingThere(f"{what} is not shown: you may not list nodes and devices")


def _refuse_gaps(snapshot: Snapshot, what: str, kinds: Sequence[str]) -> None:
    """Refuse to plan without all objects of some kinds. May raise ``NothingThere``."""
    unread = [kind for kind in kinds if snapshot.reading.extent_of(kind) is not None]
    if unread:
        raise NothingThere(f"{what} is not known: you may not list all {', '.join(unread)}")


def _room(snapshot: Snapshot, ask: Ask) -> Any:
    needed = _PLANS_NEED if ask.body.get("quota") else (KindName.NODES,)
    _refuse_gaps(snapshot, "where there is room", needed)
    _refuse_hidden_nodes(snapshot, "where there is room")
    wrong = sorted(ask.body.keys() - _ROOM_BODY.keys())
    if wrong:
        raise InvalidQuery(f"{wrong[0]}: there is no such field; there are {', '.join(_ROOM_BODY)}")
    texts = {name: ask.body.get(name, "") for name in _ROOM_BODY}
    not_text = next((name for name, value in texts.items() if not isinstance(value, str)), "")
    if not_text:
        raise InvalidQuery(f"{not_text}: not a text")
    shape = parse_shape(texts["shape"])
    if shape is None:
        raise InvalidQuery(
            f"shape: {texts['shape']!r} is neither GPUs per pod nor pods x GPUs; at most "
            f"{MOST_PODS} pods of {MOST_GPUS} GPUs"
        )
    state = snapshot.reading.state
    is_there = texts["quota"] in state.quotas.catalog.registry.specs
    if texts["quota"] and not (is_there and snapshot.reading.sight.sees_quota(texts["quota"])):
        raise InvalidQuery(f"quota: there is no ElasticQuota {texts['quota']!r}")
    return encode(find_room(state, RoomQuestion(shape, texts["namespace"], texts["quota"])))


_ROOM_BODY: Final = {
    "shape": "GPUs per pod, such as 8, or pods x GPUs, such as 4x8.",
    "namespace": "Of the pods, for the quota.",
    "quota": "Also say how many of the pods this quota lets start.",
}


def _what_if(snapshot: Snapshot, ask: Ask) -> Any:
    reading, written = snapshot.reading, ask.body.get("edits")
    _refuse_gaps(snapshot, "what would change", _PLANS_NEED)
    if ask.body.keys() - _WHAT_IF_BODY.keys() or not isinstance(written, list) or not written:
        raise InvalidQuery("edits: give a list of them, such as {drain: {nodes: [n1]}}")
    if len(written) > MOST_EDITS:
        raise InvalidQuery(f"edits: these are {len(written)}, more than {MOST_EDITS}")
    forms = EditForms(reading.state, split_subject, lambda: _read_defaults(snapshot), reading.sight)
    try:
        edits = [edit for document in written for edit in forms.read(document)]
        limits = [limit_time(_TRIAL_SECONDS, monotonic) for _ in range(2)]
        before = snapshot.keep("outcomes", lambda: view_outcomes(reading.state, limits[0]))
        answer = ask_what_if(reading, edits, limits[1], before)
    except EditError as error:
        raise InvalidQuery(f"edits: {error}") from None
    return WithGaps(encode(answer), (*forms.gaps, *answer.gaps))


def _read_defaults(snapshot: Snapshot) -> ServerDefaults:
    source, namespace = snapshot.on_demand, snapshot.target.namespace
    if source is None:
        return ServerDefaults(namespace, format_time(snapshot.at), None)
    return source.read_defaults(namespace)


_WHAT_IF_BODY: Final = {
    "edits": "What would be changed, in order; each is one key with its settings, as in "
    "koord what-if: submit with manifest; cordon, uncordon, drain and removeNodes with nodes; "
    "addNodes with like and count; delete with ref; patch with ref and merge.",
}


def _names_of(entry: QueueEntry) -> list[str]:
    """Return the names of what waits, as the asker sees them: empty ones if they are hidden."""
    return ["" if isinstance(name, HiddenName) else name for name in entry.names]


def _unit_of(entry: QueueEntry) -> str:
    names = _names_of(entry)
    hidden = "" if all(names) else f"#{entry.position}.{format_time(entry.since)}"
    return f"{entry.kind}/{','.join(names)}{hidden}"


def _place_of(entry: QueueEntry) -> int:
    return entry.position or 1 << 62  # what has none comes last


def _spaces_of(entry: QueueEntry) -> set[str]:
    return {name.partition("/")[0] for name in _names_of(entry)}


def _texts(name: str) -> Callable[[Row], Sequence[str]]:
    return lambda row: (str(row[name]),)


_QUEUE: Final = ListForm(
    key=_unit_of,
    sorts={
        "position": _place_of,
        "since": lambda entry: entry.since,
        "gpus": lambda entry: entry.gpus,
        "pods": lambda entry: entry.pods,
        "priority": lambda entry: entry.priority,
    },
    filters={
        "namespace": _spaces_of,
        "quota": lambda entry: entry.quotas,
        "class": lambda entry: (str(class_of(entry.reason.code)),),
        "reason": lambda entry: (entry.reason.code,),
    },
    write=encode,
)
_BY_NAME: Final = ListForm(key=lambda row: row["name"], sorts={"name": lambda row: row["name"]})
_NODES: Final = ListForm(
    key=lambda row: row["node"],
    sorts={"node": lambda row: row["node"], "pods": lambda row: row["podCount"]},
    filters={"state": _texts("state")},
)
_RESERVATIONS: Final = replace(_BY_NAME, filters={"phase": _texts("phase"), "node": _texts("node")})
_FINDINGS: Final = ListForm(
    key=lambda row: "/".join([*map(str, row["subject"].values()), row["reason"]]),
    sorts={
        "severity": lambda row: f"{row['severity']} {(1 << 32) - row['gpusOut']:012d}",
        "since": lambda row: row["since"] or "",
    },
    filters={"severity": _texts("severity"), "reason": _texts("reason")},
)

_DECISIONS: Final = ListForm(
    key=lambda row: row["key"],
    sorts={"at": lambda row: row["at"]},
    filters={
        "namespace": lambda row: (row["ref"].rpartition("/")[0],),
        "kind": _texts("kind"),
        "what": _texts("what"),
        "class": _texts("class"),
    },
    time="at",
)

ROUTES: Final = (
    Route("Overview", "overview", "The cluster at a glance.", _overview, Overview),
    Route("Queue", "queue", "What waits, in the order of planning.", _queue, QueueEntry, _QUEUE),
    Route(
        "Explanation",
        "namespaces/{namespace}/explanations/{kind}/{name}",
        "Why a pod, PodGroup or Reservation waits, and what would help.",
        _explanation,
        Explanation,
    ),
    Route(
        "Remedies",
        "namespaces/{namespace}/remedies/{kind}/{name}",
        "What would help it, each tried on a copy.",
        _remedies,
        dict,
    ),
    Route(
        "Story",
        "namespaces/{namespace}/stories/{kind}/{name}",
        "What happened to it, and where its time went.",
        _story,
        dict,
        is_kept=False,
    ),
    Route(
        "Decisions",
        "decisions",
        "What was decided and what happened in the cluster.",
        _decisions,
        TimelineEntry,
        _DECISIONS,
    ),
    Route(
        "AuditReport",
        "auditreport",
        "Where waiting time went: waits, causes, who blocks, who starves.",
        _audit_report,
        AuditReport,
        params=_AUDIT_PARAMS,
        begin=_begin_audit_report,
        is_kept=False,
    ),
    Route("Quotas", "quotas", "All quotas, and what they use.", _quotas, QuotaView, _BY_NAME),
    Route("Quota", "quotas/{name}", "A quota, who uses it and what waits.", _quota, QuotaView),
    Route(
        "Fragmentation",
        "fragmentation",
        "How the free GPUs are spread over nodes.",
        _fragmentation,
        Fragmentation,
    ),
    Route("Health", "health", "What is not well.", _health, HealthFinding, _FINDINGS),
    Route("Nodes", "nodes", "Nodes, what is used there, by whom.", _nodes, NodeUsage, _NODES),
    Route("Node", "nodes/{name}", "A node, and the pods on it.", _node, dict),
    Route("Map", "map", "Every GPU by node, and who has it.", _map, GpuMap),
    Route("Devices", "nodes/{name}/devices", "The devices of a node.", _devices, dict),
    Route(
        "Reservations",
        "reservations",
        "What reservations hold, and for whom.",
        _reservations,
        ReservationUsage,
        _RESERVATIONS,
    ),
    Route(
        "Topology",
        "topologies/{name}",
        "The domains of a network topology, and what is free in each.",
        _topology,
        TopologyCapacity,
    ),
    Route(
        "Room",
        "room",
        "Where there is room for pods with so many GPUs.",
        _room,
        ShapeRoom,
        body=_ROOM_BODY,
    ),
    Route(
        "WhatIf",
        "whatifs",
        "What edits of the cluster would change; nothing is written.",
        _what_if,
        WhatIfAnswer,
        body=_WHAT_IF_BODY,
        schemas={"edits": {"type": "array", "items": {"type": "object"}, "maxItems": MOST_EDITS}},
    ),
)
