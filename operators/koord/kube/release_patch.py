"""The one patch that releases a pod: gate off, plan recorded, pinned if somebody else may bind it.

It is a JSON patch because it must fail as a whole when the pod is not what the plan was made for:
``test`` on the uid and on the gate keeps a stale leader from touching a pod that was recreated or
released, and ``test … null`` keeps what somebody has added meanwhile from being overwritten.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from koord.api.keys import operators
from koord.core.pods import Handling, Pod
from koord.kube.translate.node_affinity import NODE_NAME_FIELD, AffinityForm, Depth, TermForm
from koord.kube.translate.pods import PodForm

Operation: TypeAlias = dict[str, Any]

_ANNOTATIONS: Final = "/metadata/annotations"
_AFFINITY: Final = "/spec/affinity"
_NODE_AFFINITY: Final = f"{_AFFINITY}/nodeAffinity"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = f"{_NODE_AFFINITY}/{_REQUIRED}/nodeSelectorTerms"


def make_release_patch(
    pod: Pod, node: str, form: PodForm, annotations: Mapping[str, str]
) -> list[Operation]:
    """Return the operations; ``form`` says how the pod is written on the server."""
    operations: list[Operation] = [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": operators.PLACEMENT_GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        *_annotate(form, annotations),
    ]
    if pod.handling is Handling.RELEASE_PINNED:
        operations += _pin(form.affinity, node)
    return operations


def _annotate(form: PodForm, annotations: Mapping[str, str]) -> list[Operation]:
    if not form.has_annotations:
        return _add_absent(_ANNOTATIONS, dict(annotations))
    return [
        {"op": "add", "path": f"{_ANNOTATIONS}/{_escape(key)}", "value": value}
        for key, value in annotations.items()
    ]


def _pin(form: AffinityForm, node: str) -> list[Operation]:
    """Narrow every required term to one node; terms are alternatives, so none may be left out."""
    field = {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    match form.depth:
        case Depth.NONE:
            return _add_absent(_AFFINITY, {"nodeAffinity": {_REQUIRED: required}})
        case Depth.AFFINITY:
            return _add_absent(_NODE_AFFINITY, {_REQUIRED: required})
        case Depth.NODE_AFFINITY:
            return _add_absent(f"{_NODE_AFFINITY}/{_REQUIRED}", required)
        case Depth.REQUIRED:
            return [op for i, term in enumerate(form.terms) for op in _narrow(i, term, field)]


def _narrow(index: int, term: TermForm, field: Operation) -> list[Operation]:
    path = f"{_TERMS}/{index}/matchFields"
    match term:
        case TermForm.EMPTY:
            # It matches no node as it is, and the server lets nobody change that.
            return []
        case TermForm.EXPRESSIONS:
            return _add_absent(path, [field])
        case TermForm.FIELDS:
            return [{"op": "add", "path": f"{path}/-", "value": field}]


def _add_absent(path: str, value: Any) -> list[Operation]:
    """Set what is not there; the server takes a test for null to mean just that."""
    return [
        {"op": "test", "path": path, "value": None},
        {"op": "add", "path": path, "value": value},
    ]


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
