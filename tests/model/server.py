"""A small model of the API server.

It makes thousands of crashes affordable. ``test_contract`` checks its rules against a real API
server, request by request; what is not checked there must not be relied on.

Pods, nodes, PodGroups, ElasticQuotas, Reservations and PodDisruptionBudgets only; nobody
controls the budgets, so what they allow is what their owners say. No
admission, no defaulting beyond what placement reads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.model.applied import Applied
from tests.model.jsonpatch import PatchFailed, apply_json_patch, merge, merge_conditions
from tests.model.store import (
    API_VERSIONS,
    BUDGETS,
    MIGRATION_JOBS,
    NODES,
    POD_GROUPS,
    PODS,
    QUOTAS,
    RESERVATIONS,
    Key,
    Obj,
    Store,
    decode,
    encode,
)

from koord.kube.client import Media

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_REASONS = {400: "BadRequest", 404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid"}


class Unplaced(Exception):  # noqa: N818 - an answer, not a defect
    """The answer is an error."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason or _REASONS[status]


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``body`` is decoded."""

    method: str
    path: str
    body: Any = None
    media: str = Media.JSON
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """The object or collection that a path names."""

    kind: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body."""

    status: int
    body: bytes


def parse_path(path: str) -> Target:
    """Read a path of the API. Of two groups with a resource of one name, the kind says which."""
    is_grouped = path.startswith("/apis/")
    parts = path.split("/")[4 if is_grouped else 3 :]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, group = parts[0], path.split("/")[2] if is_grouped else ""
    kind = f"{plural}.{group}"
    return Target(kind if kind in API_VERSIONS else plural, namespace, *parts[1:3])


class Server:
    """Answers requests immediately, one at a time."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.store = Store()
        self._wall = wall
        self._applied: dict[str, Applied] = {}
        """PodGroup uid -> owners of its status fields."""

    def handle(self, request: Request) -> Answer:
        """Answer one request."""
        target = parse_path(request.path)
        try:
            return self._route(request, target)
        except Unplaced as refusal:
            body = {
                "kind": "Status",
                "status": "Failure",
                "code": refusal.status,
                "reason": refusal.reason,
                "message": str(refusal),
            }
            return Answer(refusal.status, encode(body))

    def _route(self, request: Request, target: Target) -> Answer:  # noqa: PLR0911 - a table
        if target.kind == "events":
            return Answer(201, b"{}")
        match request.method, target.subresource:
            case "GET", "" if not target.name:
                return Answer(200, self.store.page(target.kind, target.namespace))
            case "GET", _:
                return self._show(target)
            case "POST", "binding":
                return self._bind(target, request.body)
            case "POST", "eviction":
                return self._evict(target, request.body["deleteOptions"])
            case "POST", _:
                return self._create(target, request.body)
            case "PATCH", "":
                return self._patch(target, request)
            case "PATCH", "status":
                return self._patch_status(target, request)
            case "DELETE", _:
                return self._delete(target, request.body or {})
        raise AssertionError(f"not modelled: {request}")

    def _find(self, target: Target) -> Obj:
        found = self.store.get(target.kind, target.key)
        if found is None:
            raise Unplaced(404, f'{target.kind} "{target.name}" not found')
        return found

    def _show(self, target: Target, status: int = 200) -> Answer:
        return Answer(status, encode(self._find(target)))

    # Create and delete

    def _create(self, target: Target, body: Obj) -> Answer:
        meta = body["metadata"]
        named = Target(target.kind, target.namespace, meta["name"])
        version, kind = API_VERSIONS[target.kind]
        created = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        spec = body.get("spec", {})
        if target.kind == PODS:
            check_new_pod(spec)
            spec = {"schedulerName": "default-scheduler", **spec}
        elif target.kind == POD_GROUPS:
            check_pod_group(spec)
        if self.store.get(named.kind, named.key) is not None:
            raise Unplaced(409, f"{named.kind} {named.name!r} already exists", "AlreadyExists")
        kept = {k: v for k, v in meta.items() if k in _META_OF_USERS and v}
        obj = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {**kept, "creationTimestamp": created},
            "spec": decode(encode(spec)),
        }
        if target.kind != NODES:
            obj["metadata"]["namespace"] = target.namespace
        if target.kind in _CUSTOM:
            obj["metadata"]["generation"] = 1
        if target.kind in {PODS, NODES}:
            obj["status"] = _first_status(target.kind, body)
        elif target.kind == BUDGETS:
            obj["status"] = body["status"]
        self.store.insert(named.kind, named.key, obj)
        return self._show(named, 201)

    def _delete(self, target: Target, options: Obj) -> Answer:
        found = self._find(target)
        self._check_uid(found, options)
        if target.kind == PODS:
            self._mark_deleted(target, options.get("gracePeriodSeconds"))
            found = self._find(target)
        meta = found["metadata"]
        if not meta.get("finalizers") and not meta.get(_GRACE):
            self._remove(target)
        return Answer(200, b"{}")

    def _evict(self, target: Target, options: Obj) -> Answer:
        """Delete a pod if its budgets allow it."""
        self._check_uid(self._find(target), options)
        self._ask_budgets(target, is_dry=bool(options.get("dryRun")))
        if not options.get("dryRun"):
            obj = self.store.copy(PODS, target.key)
            reason = {"type": "DisruptionTarget", "status": "True"}
            reason["reason"] = "EvictionByEvictionAPI"
            obj["status"]["conditions"] = merge_conditions(_conditions(obj), [reason])
            self.store.replace(PODS, target.key, obj)
            self._delete(target, options)
        return Answer(201, b'{"kind":"Status","status":"Success"}')

    def _ask_budgets(self, target: Target, *, is_dry: bool) -> None:
        """Refuse an eviction that budgets do not allow; count one that they do."""
        labels = self._find(target)["metadata"].get("labels") or {}
        budgets = [
            budget
            for budget in self.store.all(BUDGETS)
            if budget["metadata"]["namespace"] == target.namespace
            and budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
        ]
        if len(budgets) > 1:
            text = "This pod has more than one PodDisruptionBudget, which the eviction subresource"
            raise Unplaced(500, f"{text} does not support.", "InternalError")
        for budget in budgets:
            if budget["status"]["disruptionsAllowed"] < 1:
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                raise Unplaced(429, text, "TooManyRequests")
            if not is_dry:
                key = (target.namespace, budget["metadata"]["name"])
                changed = self.store.copy(BUDGETS, key)
                changed["status"]["disruptionsAllowed"] -= 1
                self.store.replace(BUDGETS, key, changed)

    def _check_uid(self, found: Obj, options: Obj) -> None:
        uid = options.get("preconditions", {}).get("uid")
        if uid and uid != found["metadata"]["uid"]:
            raise Unplaced(409, "the UID in the precondition does not match")

    def _mark_deleted(self, target: Target, asked: int | None) -> None:
        """Set the grace period of a pod; a later request can only shorten it."""
        obj = self.store.copy(target.kind, target.key)
        meta = obj["metadata"]
        grace = _grace_of(obj) if asked is None else asked
        if _GRACE in meta and (asked is None or asked >= meta[_GRACE]):
            return
        when = datetime.fromtimestamp(self._wall() + grace, UTC)
        meta["deletionTimestamp"] = when.strftime("%Y-%m-%dT%H:%M:%SZ")
        meta[_GRACE] = grace
        self.store.replace(target.kind, target.key, obj)

    def _remove(self, target: Target) -> None:
        self._applied.pop(self._find(target)["metadata"]["uid"], None)
        self.store.remove(target.kind, target.key)

    # Changes

    def _bind(self, target: Target, body: Obj) -> Answer:
        found = self._find(target)
        meta, spec = found["metadata"], found["spec"]
        uid = body["metadata"].get("uid")
        if uid and uid != meta["uid"]:
            raise Unplaced(409, "the UID in the precondition does not match")
        if "deletionTimestamp" in meta:
            raise Unplaced(409, f"pod {target.name} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            raise Unplaced(
                409, f"pod {target.name} is already assigned to node {spec['nodeName']!r}"
            )
        if spec.get("schedulingGates"):
            raise Unplaced(409, f"pod {target.name} has non-empty .spec.schedulingGates")
        obj = self.store.copy(PODS, target.key)
        obj["spec"]["nodeName"] = body["target"]["name"]
        if annotations := body["metadata"].get("annotations"):
            obj["metadata"].setdefault("annotations", {}).update(annotations)
        scheduled = {"type": "PodScheduled", "status": "True"}
        present = [c for c in _conditions(obj) if c["type"] != "PodScheduled"]
        obj["status"]["conditions"] = [*present, scheduled]
        self.store.replace(PODS, target.key, obj)
        return Answer(201, b'{"kind":"Status","status":"Success"}')

    def _patch(self, target: Target, request: Request) -> Answer:
        found = self._find(target)
        obj = self.store.copy(target.kind, target.key)
        if request.media == Media.JSON_PATCH:
            try:
                apply_json_patch(obj, request.body)
            except PatchFailed as failure:
                raise Unplaced(422, f"the server rejected our request: {failure}") from failure
        else:
            merge(obj, request.body)
        meta, before = obj["metadata"], found["metadata"]
        if meta.get("uid") != before["uid"]:
            raise Unplaced(422, "metadata.uid: field is immutable")
        if target.kind == PODS:
            obj["status"] = found["status"]
            check_pod_update(found["spec"], obj["spec"])
            if not obj["spec"].get("schedulingGates"):
                obj["spec"].pop("schedulingGates", None)
        elif target.kind in _CUSTOM and obj["spec"] != found["spec"]:
            if target.kind == POD_GROUPS:
                check_pod_group(obj["spec"])
            meta["generation"] = before["generation"] + 1
        if not meta.get("annotations"):
            meta.pop("annotations", None)
        if meta.get(_GRACE) == 0 and not meta.get("finalizers"):
            self._remove(target)
            return Answer(200, encode(obj))
        self.store.replace(target.kind, target.key, obj)
        return self._show(target)

    def _patch_status(self, target: Target, request: Request) -> Answer:
        found = self._find(target)
        uid = request.body.get("metadata", {}).get("uid")
        is_applied = request.media == Media.APPLY_PATCH
        if uid and uid != found["metadata"]["uid"] and not is_applied:
            raise Unplaced(422, "metadata.uid: field is immutable")
        version = request.body.get("metadata", {}).get("resourceVersion")
        if version and version != found["metadata"]["resourceVersion"]:
            raise Unplaced(409, "the object has been modified")
        obj = self.store.copy(target.kind, target.key)
        said = request.body.get("status", {})
        if is_applied:
            applied = self._applied.setdefault(found["metadata"]["uid"], Applied())
            status = applied.apply(obj.get("status", {}), request.params["fieldManager"], said)
            if status is None:
                raise Unplaced(422, "status.conditions: Required value")
            obj["status"] = status
            obj["metadata"]["managedFields"] = applied.describe()
        else:
            status = {**obj.get("status", {}), **said}
            status = {key: value for key, value in status.items() if value is not None}
            if "conditions" in said:
                status["conditions"] = merge_conditions(_conditions(obj), said["conditions"])
            obj["status"] = status
            if "annotations" in request.body.get("metadata", {}):
                merge(obj, {"metadata": {"annotations": request.body["metadata"]["annotations"]}})
                if not obj["metadata"]["annotations"]:
                    del obj["metadata"]["annotations"]
        self.store.replace(target.kind, target.key, obj)
        return self._show(target)


_CUSTOM = (POD_GROUPS, QUOTAS, RESERVATIONS, MIGRATION_JOBS)
_GRACE = "deletionGracePeriodSeconds"
_META_OF_USERS = ("name", "labels", "annotations", "finalizers", "ownerReferences")


def _grace_of(pod: Obj) -> int:
    has_ended = pod["status"]["phase"] in {"Succeeded", "Failed"}
    grace: int = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return 0 if has_ended or not pod["spec"].get("nodeName") else grace


def _first_status(kind: str, body: Obj) -> Obj:
    if kind == NODES:
        return body.get("status", {})
    if not body.get("spec", {}).get("schedulingGates"):
        return {"phase": "Pending"}
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    return {"phase": "Pending", "conditions": [gated]}


def _conditions(obj: Obj) -> list[Obj]:
    return obj.get("status", {}).get("conditions") or []


def check_pod_group(spec: Obj) -> None:
    """Raise Unplaced for a spec that the schema does not allow."""
    if spec.get("minMember", 0) < 1:
        raise Unplaced(422, "spec.minMember: must be at least 1")


def check_new_pod(spec: Obj) -> None:
    """Raise Unplaced for a pod that must not be created."""
    if spec.get("schedulingGates") and spec.get("nodeName"):
        raise Unplaced(
            422, "spec.nodeName: cannot be set until all schedulingGates have been cleared"
        )


def check_pod_update(old: Obj, new: Obj) -> None:
    """Raise Unplaced for a change of a pod's spec that the API server does not allow."""
    gates = [one["name"] for one in new.get("schedulingGates", ())]
    before = [one["name"] for one in old.get("schedulingGates", ())]
    if not set(gates) <= set(before):
        raise Unplaced(422, "spec.schedulingGates: only deletion is allowed")
    mutable = {"schedulingGates", "affinity"} if before else {"schedulingGates"}
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    if changed - mutable:
        raise Unplaced(422, f"pod updates may not change fields other than …: {sorted(changed)}")
    if "affinity" in changed and not _is_narrowed(_terms(old), _terms(new)):
        raise Unplaced(422, "spec.affinity: only additions are allowed")


def _terms(spec: Obj) -> list[Obj]:
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return (node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []


def _is_narrowed(old: list[Obj], new: list[Obj]) -> bool:
    """Whether every old term is still there, with nothing but additions at its end."""
    if not old:
        return True
    return len(old) == len(new) and all(
        bool(before) >= bool(after)
        and all(
            after.get(part, [])[: len(before.get(part, []))] == before.get(part, [])
            for part in ("matchExpressions", "matchFields")
        )
        for before, after in zip(old, new, strict=True)
    )
