"""Koordinator's diagnosis API: what the leader knows, under the paths and names of its scheduler.

For runbooks that read those. Only what exists here is served; a field without a counterpart is
null. Documents are made in the main loop from the state as it is; nothing is planned or changed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from koord.core.device.plugin import Devices
from koord.core.device.status import observe_devices
from koord.core.engine.state import ClusterState
from koord.core.model.gangs import GangKey
from koord.core.model.text import format_time
from koord.core.model.units import CPU, MEMORY, PODS, Amounts, format_amount
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import add_up
from koord.core.reservation.ledger import ReservationAccount
from koord.core.reservation.model import ReservationInfo
from koord.core.reservation.plugin import Reservations
from koord.runtime.descriptions import describe_quota_summary
from koord.runtime.numa_diagnosis import describe_numa, describe_numa_options

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

BASE: Final = "/apis/v1"
NOT_LEADING: Final = b'{"message": "the instance is not leader"}'
_PLUGINS: Final = "/plugins"
_NANOSECONDS: Final = 1_000_000_000
_STORAGE: Final = "ephemeral-storage"
_Query: TypeAlias = Mapping[str, str]
_Detail: TypeAlias = dict[str, dict[str, dict[str, int]]]
"""Type of device -> minor, as text -> resources."""
_Handler: TypeAlias = Callable[[ClusterState, Mapping[str, str], _Query], Any]


@dataclass(frozen=True, slots=True)
class DiagnosisPage:
    """An answer: a status of HTTP, and JSON."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class DiagnosisDocument:
    """An answer that is not encoded yet: that needs no main loop.

    ``document`` may be what makes it, of values that nobody changes.
    """

    status: int
    document: Any

    def encode(self) -> DiagnosisPage:
        document = self.document() if callable(self.document) else self.document
        body = json.dumps(document, separators=(",", ":")).encode()
        return DiagnosisPage(self.status, body)


class _MissingError(LookupError):
    """There is no such object; the text is the message."""

    status = 404


class _UnknownNodeError(_MissingError):
    """What theirs makes of a node that it does not know, where it asks its snapshot."""

    status = 500


def answer(state: ClusterState, path: str, query: _Query) -> DiagnosisDocument:
    """Return the answer for a path below ``/apis/v1``."""
    for pattern, handler in ROUTES.items():
        values = _match(pattern, path)
        if values is None:
            continue
        try:
            return DiagnosisDocument(200, handler(state, values, query))
        except _MissingError as missing:
            return DiagnosisDocument(missing.status, {"message": str(missing)})
    return DiagnosisDocument(404, {"message": f"cannot find {BASE}{path}"})


def _match(pattern: str, path: str) -> dict[str, str] | None:
    """Return the values of the placeholders, such as ``:name``; None if the path is another."""
    wanted, given = pattern.split("/"), path.split("/")
    if len(wanted) != len(given):
        return None
    values = {}
    for part, text in zip(wanted, given, strict=True):
        if part.startswith(":") and text:
            values[part[1:]] = text
        elif part != text:
            return None
    return values


def _list_services(*_: Any) -> dict[str, list[str]]:
    return {"GET": sorted(f"{BASE}{pattern}" for pattern in ROUTES)}


def _list_gangs(state: ClusterState, *_: Any) -> dict[str, Any]:
    keys = sorted(state.gangs.keys())
    return {key: _describe_gang(state, key) for key in keys if state.gangs.spec(key) is not None}


def _find_gang(state: ClusterState, values: Mapping[str, str], _: _Query) -> dict[str, Any]:
    key = f"{values['namespace']}/{values['name']}"
    if state.gangs.spec(key) is None:
        raise _MissingError(f"cannot find gang {key}")
    return _describe_gang(state, key)


def _describe_gang(state: ClusterState, key: GangKey) -> dict[str, Any]:
    spec, group = state.gangs.spec(key), state.gangs.pod_group(key)
    if spec is None:
        raise _MissingError(f"cannot find gang {key}")
    children = [pod for pod in state.gangs.members(key).values() if not pod.phase.is_terminal]
    waiting = [pod for pod in children if pod.uid in state.assumed]
    bound = [pod for pod in children if pod.node and pod.uid not in state.assumed]
    placed = {pod.uid for pod in (*waiting, *bound)}
    oldest = min((pod.created for pod in children), default=0.0)
    created = oldest if group is None else group.created
    return {
        "name": key,
        "waitTime": spec.wait_seconds * _NANOSECONDS,
        "createTime": format_time(created),
        "mode": spec.mode,
        "gangMatchPolicy": spec.match_policy,
        "minRequiredNumber": spec.min_member,
        "totalChildrenNum": spec.total,
        "gangGroup": list(spec.group),
        "children": _set_of(children),
        "pendingChildren": _set_of(pod for pod in children if pod.uid not in placed),
        "waitingForBindChildren": _set_of(waiting),
        "boundChildren": _set_of(bound),
        "onceResourceSatisfied": None,
        "gangGroupInfo": {
            "Initialized": True,
            "GangGroupId": ",".join(spec.group),
            "GangGroup": list(spec.group),
            "OnceResourceSatisfied": None,
            "WaitingGangIDs": None,
            "RepresentativePodKey": None,
            "BindingMemberPods": _set_of(waiting),
        },
        "gangFrom": spec.source,
        "hasGangInit": True,
    }


def _set_of(pods: Any) -> dict[str, dict[str, str]]:
    """Return a set as Go's JSON has it: an object without values."""
    return {pod.key: {} for pod in sorted(pods, key=lambda pod: pod.key)}


def _list_quotas(state: ClusterState, _: Any, query: _Query) -> Callable[[], dict[str, Any]]:
    ledger, pods, tree = _open_ledger(state), _find_pods(state, query), query.get("tree", "")

    def describe() -> dict[str, Any]:
        names = [] if ledger is None else ledger.names()
        quotas = {name: _describe_quota(ledger, name, pods) for name in names if ledger}
        return {name: quota for name, quota in quotas.items() if tree in {"", quota["tree"]}}

    return describe


def _find_quota(
    state: ClusterState, values: Mapping[str, str], query: _Query
) -> Callable[[], dict[str, Any]]:
    ledger, name = _open_ledger(state), values["name"]
    if ledger is None or ledger.find(name) is None:
        raise _MissingError(f"cannot find quota {name}")
    pods = _find_pods(state, query)
    return lambda: _describe_quota(ledger, name, pods)


def _open_ledger(state: ClusterState) -> Ledger | None:
    """Return the numbers of now, which do not change any more."""
    return state.open_ledger() if state.quotas.is_in_use else None


_PodsByQuota: TypeAlias = Mapping[str, Mapping[str, Any]]


def _find_pods(state: ClusterState, query: _Query) -> _PodsByQuota | None:
    """Return the pods of each quota; None if nobody wants them."""
    if query.get("includePods") != "true":
        return None
    pods: dict[str, dict[str, Any]] = {}
    for pod in sorted(state.pods.values(), key=lambda pod: pod.key):
        use = state.quotas.usage.get(pod.uid)
        if use is not None:
            requests = dict(state.quotas.requests_of(pod))
            requests.pop(PODS, None)  # theirs are without it
            cached = {"isAssigned": use.is_used, "resource": _quantities(requests)}
            pods.setdefault(use.quota, {})[pod.key] = cached
    return pods


def _describe_quota(ledger: Ledger, name: str, pods: _PodsByQuota | None) -> dict[str, Any]:
    described = {
        key: _quantities(value) if isinstance(value, Mapping) else value
        for key, value in describe_quota_summary(ledger, name).items()
    }
    more = {"runtimeVersion": None, "selfNonPreemptibleUsed": None}
    more |= {"selfNonPreemptibleRequest": None}
    if pods is not None:
        return {**described, **more, "podCache": pods.get(name, {})}
    return {**described, **more}


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {key: format_amount(key, amount) for key, amount in sorted(amounts.items())}


def _list_devices(state: ClusterState, *_: Any) -> dict[str, Any]:
    return {name: _describe_devices(state, name) for name in sorted(state.plugin(Devices).reports)}


def _find_devices(state: ClusterState, values: Mapping[str, str], _: _Query) -> dict[str, Any]:
    name = values["name"]
    if name not in state.plugin(Devices).reports:
        raise _MissingError(f"cannot find node {name}")
    return _describe_devices(state, name)


def _describe_devices(state: ClusterState, name: str) -> dict[str, Any]:
    plugin = state.plugin(Devices)
    report = plugin.reports[name]
    free: _Detail = {}
    for device in observe_devices(plugin, report, state.pods).devices:
        free.setdefault(device.kind, {})[str(device.minor)] = dict(device.free)
    total: _Detail = {
        kind: {str(device.minor): dict(device.total) for device in devices}
        for kind, devices in report.devices
    }
    used: _Detail = {
        kind: {minor: _subtract(part, free, (kind, minor)) for minor, part in minors.items()}
        for kind, minors in total.items()
    }
    document: dict[str, Any] = {}
    for title, detail in (("Total", total), ("Free", free), ("Used", used)):
        parts = [part for minors in detail.values() for part in minors.values()]
        document[f"device{title}"] = _quantities(add_up(parts))
        document[f"device{title}Detail"] = {
            kind: {minor: _quantities(part) for minor, part in minors.items()}
            for kind, minors in detail.items()
        }
    document["allocateSet"] = _allocations(state, name)
    return document


def _subtract(part: Amounts, free: _Detail, of: tuple[str, str]) -> dict[str, int]:
    kind, minor = of
    left = free.get(kind, {}).get(minor, {})
    return {key: amount - left.get(key, 0) for key, amount in part.items()}


def _allocations(state: ClusterState, name: str) -> dict[str, Any]:
    """Return type -> pod -> minor -> what the pod was given of it."""
    allocations: dict[str, dict[str, dict[str, Any]]] = {}
    for uid, shares in state.plugin(Devices).pods_on(name).items():
        pod = state.pods.get(uid)
        if pod is None:
            continue
        for share in shares:
            of_pod = allocations.setdefault(share.kind, {}).setdefault(pod.key, {})
            of_pod[str(share.minor)] = _quantities(dict(share.part))
    return allocations


def _find_node(state: ClusterState, values: Mapping[str, str], _: _Query) -> dict[str, Any]:
    name = values["nodeName"]
    row = state.table.row_of.get(name)
    if row is None:
        raise _MissingError(f"cannot find node {name}")
    most, used = dict(state.table.node_at(row).allocatable), dict(state.used_on(name))
    left = {key: amount - used.get(key, 0) for key, amount in most.items()}
    pods: list[Pod] = sorted(state.pods_on(name), key=lambda pod: pod.key)
    return {
        "node": {"metadata": {"name": name}},
        "pods": [pod.key for pod in pods],
        "podsWithAffinity": None,
        "podsWithRequiredAntiAffinity": None,
        "usedPorts": None,
        "requested": _go_resource(used),
        "nonZeroRequested": None,
        "remaining": _go_resource(left),
        "allocatable": _go_resource(most),
        "imageStates": None,
        "pvcRefCounts": None,
        "generation": None,
    }


def _find_numa(state: ClusterState, values: Mapping[str, str], _: _Query) -> dict[str, Any]:
    return describe_numa(state, _check_node(state, values["nodeName"]))


def _find_numa_options(state: ClusterState, values: Mapping[str, str], _: _Query) -> dict[str, Any]:
    return describe_numa_options(state, _check_node(state, values["nodeName"]))


def _check_node(state: ClusterState, name: str) -> str:
    if name not in state.table.row_of:
        raise _UnknownNodeError(f'nodeinfo not found for node name "{name}"')
    return name


def _go_resource(amounts: Amounts) -> dict[str, Any]:
    """Return amounts under the names of the scheduler's own type."""
    fields = {CPU: "MilliCPU", MEMORY: "Memory", _STORAGE: "EphemeralStorage"}
    fields[PODS] = "AllowedPodNumber"
    return {
        **{field: amounts.get(key, 0) for key, field in fields.items()},
        "ScalarResources": {
            key: amount for key, amount in sorted(amounts.items()) if key not in fields
        },
    }


def _list_reservations(state: ClusterState, values: Mapping[str, str], _: _Query) -> dict[str, Any]:
    """Return the reservations of a node; without any the list is left out, as theirs is."""
    plugin, node = state.plugin(Reservations), values["nodeName"]
    held = [each for each in plugin.reservations.values() if each.status.node == node]
    items = [_describe_reservation(state, each) for each in sorted(held, key=lambda r: r.name)]
    return {"items": items} if items else {}


def _describe_reservation(state: ClusterState, reservation: ReservationInfo) -> dict[str, Any]:
    plugin = state.plugin(Reservations)
    account = plugin.accounts.get(reservation.uid, ReservationAccount(reservation))
    pods = (state.pods.get(charge.uid) for charge in plugin.users_of(reservation.uid))
    return {
        "name": reservation.name,
        "namespace": "",
        "uid": reservation.uid,
        "kind": "Reservation",
        "available": reservation.status.is_available,
        "allocateOnce": reservation.is_once,
        "allocatable": _quantities(account.reserved or reservation.requests()),
        "reserved": _quantities(reservation.inner),
        "allocated": _quantities(account.allocated()),
        "allocatablePorts": None,
        "allocatedPorts": None,
        "availableResource": None,
        "allocatedResource": None,
        "owners": None,
        "allocatePolicy": reservation.policy,
        "assignedPods": [
            {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
            for pod in pods
            if pod is not None
        ],
    }


ROUTES: Final[Mapping[str, _Handler]] = {
    "/__services__": _list_services,
    "/nodes/:nodeName": _find_node,
    f"{_PLUGINS}/Coscheduling/gangs": _list_gangs,
    f"{_PLUGINS}/Coscheduling/gang/:namespace/:name": _find_gang,
    f"{_PLUGINS}/DeviceShare/nodeDeviceSummaries": _list_devices,
    f"{_PLUGINS}/DeviceShare/nodeDeviceSummaries/:name": _find_devices,
    f"{_PLUGINS}/ElasticQuota/quotas": _list_quotas,
    f"{_PLUGINS}/ElasticQuota/quotas/:name": _find_quota,
    f"{_PLUGINS}/NodeNUMAResource/nodes/:nodeName": _find_numa,
    f"{_PLUGINS}/NodeNUMAResources/cpuTopologyOptions/:nodeName": _find_numa_options,
    f"{_PLUGINS}/Reservation/nodeReservations/:nodeName": _list_reservations,
}
"""Pattern below ``/apis/v1`` -> what answers it."""
