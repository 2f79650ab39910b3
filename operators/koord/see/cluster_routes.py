"""Answers about the cluster as it is: what one reading of it shows."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Final, TypedDict

from koord.answers.devices import NodeDevices, view_devices
from koord.answers.encoding import Encoded, encode, name_of_field
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.fragmentation import Fragmentation, ModelFragmentation, view_fragmentation
from koord.answers.gpu_map import MapNode, view_map
from koord.answers.health import HealthFinding, find_sick, see_sick
from koord.answers.hidden_amounts import (
    hide_in_fragmentation,
    hide_in_overview,
    hide_in_quota,
)
from koord.answers.overview import Overview, see_overview, view_overview
from koord.answers.queue_sight import QueueOrder, SeenQueue, WrittenEntries, rank_position
from koord.answers.queue_view import QueueEntry
from koord.answers.quota_view import QuotaView, encode_in_full, view_quota, view_quotas
from koord.answers.redaction import HiddenName, redact
from koord.answers.reservations import view_reservation
from koord.answers.topology import view_topology
from koord.answers.usage_view import (
    NodeUsage,
    NodeUsageDocument,
    PodUsage,
    view_nodes,
    view_pod,
)
from koord.core.device.plugin import Devices
from koord.core.model.reasons import class_of
from koord.core.model.text import format_time
from koord.core.reservation.plugin import Reservations
from koord.see.paging import ListForm, Row, texts_of
from koord.see.route import Ask, NothingThere, WithGaps, refuse_hidden_nodes
from koord.see.snapshots import (
    Prepare,
    Snapshot,
    find_what_others_see,
    find_what_waits,
    find_who_waits_where,
)


def show_overview(snapshot: Snapshot, _: Ask) -> Any:
    sight = snapshot.reading.sight
    view = _sum_up_all(snapshot) if sight.amounts else _sum_up(snapshot, snapshot.waiting)
    return encode(hide_in_overview(see_overview(view, sight), sight))


def _sum_up_all(snapshot: Snapshot) -> Overview:
    return snapshot.share("overview", lambda: _sum_up(snapshot, snapshot.queue.entries))


def _sum_up(snapshot: Snapshot, waiting: Sequence[QueueEntry]) -> Overview:
    sick = len(_find_sick(snapshot))
    return view_overview(waiting, _view_models(snapshot), _view_quotas(snapshot), sick)


def _find_sick(snapshot: Snapshot) -> tuple[HealthFinding, ...]:
    state = snapshot.reading.state
    return snapshot.share("sick", lambda: find_sick(state, snapshot.at))


def _view_models(snapshot: Snapshot) -> tuple[ModelFragmentation, ...]:
    return snapshot.share("models", lambda: view_fragmentation(snapshot.reading.state))


def _view_quotas(snapshot: Snapshot) -> tuple[QuotaView, ...]:
    return snapshot.share("quotas", lambda: view_quotas(snapshot.reading.state).quotas)


PARTS: Final[Sequence[Prepare]] = (
    find_what_waits,
    find_who_waits_where,
    find_what_others_see,
    _find_sick,
    _view_models,
    _view_quotas,
    _sum_up_all,
)
"""What answers of many have in common, and is computed before they are asked for."""


def list_queue(snapshot: Snapshot, _: Ask) -> Sequence[QueueEntry]:
    return snapshot.waiting


def list_quotas(snapshot: Snapshot, _: Ask) -> list[Row]:
    sight = snapshot.reading.sight
    return [
        encode(hide_in_quota(redact(quota, sight.hide), sight))
        for quota in _view_quotas(snapshot)
        if sight.sees_quota(quota.summary.name)
    ]


def show_quota(snapshot: Snapshot, ask: Ask) -> Any:
    sight, name = snapshot.reading.sight, ask.parts["name"]
    waiting = snapshot.queue.entries
    is_seen = sight.sees_quota(name)
    view = view_quota(snapshot.reading.state, name, waiting) if is_seen else None
    if view is None:
        or_hidden = "" if sight.quotas else ", or you may not see it"
        raise NothingThere(f"there is no ElasticQuota {name} in force{or_hidden}")
    return encode_in_full(hide_in_quota(redact(view, sight.hide), sight))


class NamedDocument(TypedDict):
    """An object, by its name."""

    name: str


class NamespacesDocument(TypedDict):
    """Namespaces that may be named; ``isComplete`` once it was asked of all."""

    items: list[NamedDocument]
    isComplete: bool


def list_namespaces(snapshot: Snapshot, _: Ask) -> NamespacesDocument:
    """Return the namespaces that have something in them, of those whose pods may be listed."""
    sight = snapshot.reading.sight
    seen = sorted(filter(sight.sees, snapshot.namespaces))
    return {"items": [{"name": name} for name in seen], "isComplete": sight.is_complete}


def show_fragmentation(snapshot: Snapshot, _: Ask) -> Any:
    value = Fragmentation(_view_models(snapshot))
    return encode(hide_in_fragmentation(value, snapshot.reading.sight))


def list_findings(snapshot: Snapshot, _: Ask) -> list[Row]:
    source = snapshot.on_demand
    own = () if source is None else source.find_trouble()
    findings = see_sick((*own, *_find_sick(snapshot)), snapshot.reading.sight)
    return [encode(finding) for finding in findings]


def list_nodes(snapshot: Snapshot, _: Ask) -> list[Row]:
    if not snapshot.reading.sight.nodes:
        return []
    return [_write_node(snapshot, node) for node in view_nodes(snapshot.reading.state)]


def _write_node(snapshot: Snapshot, usage: NodeUsage) -> NodeUsageDocument:
    tenants = filter(snapshot.reading.sight.sees, usage.tenants)
    document: NodeUsageDocument = encode(usage)
    return {**document, "tenants": list(tenants)}


class NodeInFullDocument(NodeUsageDocument):
    """A node, and the pods on it."""

    pods: list[Encoded[PodUsage]]


def show_node(snapshot: Snapshot, ask: Ask) -> NodeInFullDocument:
    refuse_hidden_nodes(snapshot, "what a node has")
    state, name = snapshot.reading.state, ask.parts["name"]
    usage = next((each for each in view_nodes(state) if each.node.name == name), None)
    if usage is None:
        raise NothingThere(f"there is no node {name}")
    hide = snapshot.reading.sight.hide
    pods = [encode(redact(view_pod(state, pod), hide)) for pod in usage.pods]
    return {**_write_node(snapshot, usage), "pods": pods}


def show_map(snapshot: Snapshot, _: Ask) -> Any:
    refuse_hidden_nodes(snapshot, "who has which GPU")
    view = view_map(snapshot.reading.state, snapshot.reading.sight)
    return {**encode(replace(view, nodes=())), "nodes": _encode_alike(view.nodes)}


def _encode_alike(values: Sequence[MapNode]) -> list[Row]:
    """Encode thousands of values of one class, which have only texts, numbers and lists of them."""
    names = [(each.name, name_of_field(MapNode, each.name)) for each in fields(MapNode)]
    return [{name: getattr(value, attribute) for attribute, name in names} for value in values]


class DevicesDocument(TypedDict):
    """The devices of nodes; of one, here."""

    devices: list[Encoded[NodeDevices]]


def show_devices(snapshot: Snapshot, ask: Ask) -> DevicesDocument:
    refuse_hidden_nodes(snapshot, "what a node has")
    state, name = snapshot.reading.state, ask.parts["name"]
    if name not in state.plugin(Devices).reports:
        raise NothingThere(f"there is no Device {name}")
    return {"devices": encode(view_devices(state, [name]))}


def list_reservations(snapshot: Snapshot, _: Ask) -> list[Row] | WithGaps:
    state, sight = snapshot.reading.state, snapshot.reading.sight
    if not sight.reservations:
        return WithGaps([], (_RESERVATIONS_HIDDEN,))
    return [
        encode(redact(view_reservation(state, reservation, snapshot.at), sight.hide))
        for reservation in state.plugin(Reservations).reservations.values()
    ]


_RESERVATIONS_HIDDEN: Final = AnswerGap("reservations", GapCause.HIDDEN, "what they hold")


def show_topology(snapshot: Snapshot, ask: Ask) -> Any:
    refuse_hidden_nodes(snapshot, "which domains there are")
    state, name = snapshot.reading.state, ask.parts["name"]
    tree = state.topologies.tree(name) if name in state.topologies else None
    if tree is None:
        raise NothingThere(f"there is no ClusterNetworkTopology {name} in force")
    return encode(view_topology(state, name, tree))


def _names_of(entry: QueueEntry) -> list[str]:
    """Return the names of what waits, as the asker sees them: empty ones if they are hidden."""
    return ["" if isinstance(name, HiddenName) else name for name in entry.names]


_format_since = lru_cache(maxsize=1 << 14)(format_time)
"""Of thousands of entries it is a part of the key, whenever something has changed."""


def _unit_of(entry: QueueEntry) -> str:
    return _unit_at(entry, entry.position)


def _unit_at(entry: QueueEntry, position: int) -> str:
    """Return the key of an entry that is at this position."""
    if len(entry.names) == 1:
        if not isinstance(entry.names[0], HiddenName):
            return f"{entry.kind}/{entry.names[0]}"
        return f"{entry.kind}/#{position}.{_format_since(entry.since)}"
    names = _names_of(entry)
    hidden = "" if all(names) else f"#{position}.{_format_since(entry.since)}"
    return f"{entry.kind}/{','.join(names)}{hidden}"


def _place_of(entry: QueueEntry) -> int:
    return rank_position(entry.position)


def _spaces_of(entry: QueueEntry) -> set[str]:
    return {name.partition("/")[0] for name in _names_of(entry)}


def _narrow(entries: Sequence[QueueEntry], filters: Mapping[str, str]) -> Sequence[QueueEntry]:
    """Return the entries of a namespace, if it is one of those that the asker sees."""
    namespace = filters.get("namespace")
    if not namespace or not isinstance(entries, SeenQueue):
        return entries
    return entries.by_namespace.get(namespace, ())


def _sort_queue(entries: Sequence[QueueEntry], sort: str) -> Sequence[QueueEntry] | None:
    """Return all that waits by one of the sorts: most of it is the same for all who ask."""
    if not isinstance(entries, SeenQueue):
        return None
    name = sort.removeprefix("-")
    value = None if name == _BY_PLACE else QUEUE.sorts[name]
    return entries.sorted_by(QueueOrder(name, name != sort, value, _unit_at))


_BY_PLACE: Final = "position"
_WRITTEN: Final = WrittenEntries()
QUEUE: Final = ListForm(
    key=_unit_of,
    sorts={
        _BY_PLACE: _place_of,
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
    write=_WRITTEN.write,
    narrow=_narrow,
    sort=_sort_queue,
)
BY_NAME: Final = ListForm(key=lambda row: row["name"], sorts={"name": lambda row: row["name"]})
NODES: Final = ListForm(
    key=lambda row: row["node"],
    sorts={"node": lambda row: row["node"], "pods": lambda row: row["podCount"]},
    filters={"state": texts_of("state")},
)
RESERVATIONS: Final = replace(
    BY_NAME, filters={"phase": texts_of("phase"), "node": texts_of("node")}
)
FINDINGS: Final = ListForm(
    key=lambda row: "/".join([*map(str, row["subject"].values()), row["reason"]]),
    sorts={
        "severity": lambda row: f"{row['severity']} {(1 << 32) - row['gpusOut']:012d}",
        "since": lambda row: row["since"] or "",
    },
    filters={"severity": texts_of("severity"), "reason": texts_of("reason")},
)
