"""Whether jobs survive it when their pods are evicted, for another gang or from a drained node.

A Job counts evicted pods as failed: a gang of eight is beyond the default backoffLimit of six after
its first preemption. With a ``podFailurePolicy`` that ignores ``DisruptionTarget`` it makes them
again instead. Kubernetes accepts one only for pods with ``restartPolicy: Never``.

The jobs of Kubeflow and KubeDL have a ``restartPolicy`` per role instead: an evicted pod ends as
failed (exit code 143), and some policies end the job with it. Knows no cluster.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koord.api.keys import gang, operators, quota
from koord.api.parse import Problem
from koord.api.untyped import to_list, to_map
from koord.api.workloads import Document, find_jobs

POLICY: Final = "podFailurePolicy"
_DISRUPTION: Final = "DisruptionTarget"
_NAMES: Final = (gang.POD_GROUP, gang.LEGACY_NAME, gang.NAME, quota.NAME)
"""Labels and annotations that name a gang or a quota."""
_ADD: Final = (
    "is missing: a Job counts evicted pods as failed, so that its first preemption may end it. Add "
    "rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]"
)
_NEVER: Final = (
    "with another value than Never a Job counts evicted pods as failed, so that its first "
    "preemption may end it: set Never, and a podFailurePolicy that ignores DisruptionTarget"
)


@dataclass(frozen=True, slots=True)
class _Roles:
    """What restart policies of the roles of a kind do to a job whose pod was evicted."""

    field: str
    ends_with: frozenset[str]
    """Policies with which the job fails. Empty stands for the policy of who names none."""


_EVER: Final = frozenset({"Never", "OnFailure", "Always"})
_TRAINING_OPERATOR: Final = "kubeflow.org/v1"
_KUBEDL: Final = "training.kubedl.io/"
_ROLES: Final[Mapping[tuple[str, str], _Roles]] = {
    (_TRAINING_OPERATOR, "PyTorchJob"): _Roles("pytorchReplicaSpecs", frozenset({"Never"})),
    (_TRAINING_OPERATOR, "PaddleJob"): _Roles("paddleReplicaSpecs", frozenset({"Never"})),
    (_TRAINING_OPERATOR, "JAXJob"): _Roles("jaxReplicaSpecs", frozenset({"Never", ""})),
    (_TRAINING_OPERATOR, "TFJob"): _Roles("tfReplicaSpecs", _EVER | {""}),
    (_TRAINING_OPERATOR, "XGBoostJob"): _Roles("xgbReplicaSpecs", _EVER | {""}),
    (_KUBEDL, "PyTorchJob"): _Roles("pytorchReplicaSpecs", _EVER),
    (_KUBEDL, "TFJob"): _Roles("tfReplicaSpecs", _EVER),
    (_KUBEDL, "XGBoostJob"): _Roles("xgbReplicaSpecs", _EVER),
}
_ROLE: Final = (
    "the job fails when a pod of this role is evicted, so that its first preemption may end it: "
    "set ExitCode, with which a pod that was stopped (exit code 143) is made again"
)


def make_rule() -> dict[str, Any]:
    return {"action": "Ignore", "onPodConditions": [{"type": _DISRUPTION}]}


def ignore_disruptions(document: Document) -> None:
    """Let the Jobs of an object ignore evictions, unless they say themselves what these are."""
    for _, job in find_jobs(document):
        template = job.get("template") or {}
        if not opts_in(template) or not _never_restarts(template) or _names_disruption(job):
            continue
        policy = job.setdefault(POLICY, {})
        policy["rules"] = [make_rule(), *(policy.get("rules") or ())]


def find_disruption_problems(document: Document) -> Iterator[Problem]:
    """Yield for each Job or role of an object that opts in what ends it at its first preemption."""
    yield from _find_role_problems(document)
    for path, job in find_jobs(document):
        template = job.get("template")
        if not isinstance(template, Mapping) or not opts_in(template) or _names_disruption(job):
            continue
        if _never_restarts(template):
            yield Problem(f"{path}.{POLICY}", "", _ADD)
        elif value := to_map(template.get("spec")).get("restartPolicy"):
            yield Problem(f"{path}.template.spec.restartPolicy", str(value), _NEVER)


def _find_role_problems(document: Document) -> Iterator[Problem]:
    roles = _find_roles(str(document.get("apiVersion", "")), str(document.get("kind")))
    if roles is None:
        return
    for name, role in to_map(to_map(document.get("spec")).get(roles.field)).items():
        policy = str(to_map(role).get("restartPolicy") or "")
        if policy in roles.ends_with and opts_in(to_map(to_map(role).get("template"))):
            text = _ROLE if policy else f"is missing, which means Never: {_ROLE}"
            yield Problem(f"spec.{roles.field}.{name}.restartPolicy", policy, text)


def _find_roles(version: str, kind: str) -> _Roles | None:
    group = _KUBEDL if version.startswith(_KUBEDL) else version
    return _ROLES.get((group, kind))


def opts_in(template: Mapping[str, Any]) -> bool:
    """Whether we place the pods of a template, or would where gate and scheduler are injected."""
    spec, metadata = to_map(template.get("spec")), to_map(template.get("metadata"))
    keys = {*to_map(metadata.get("labels")), *to_map(metadata.get("annotations"))}
    gates = [to_map(gate).get("name") for gate in to_list(spec.get("schedulingGates"))]
    is_named = spec.get("schedulerName") == operators.SCHEDULER_NAME
    return is_named or operators.PLACEMENT_GATE in gates or not keys.isdisjoint(_NAMES)


def _never_restarts(template: Mapping[str, Any]) -> bool:
    return to_map(template.get("spec")).get("restartPolicy") == "Never"


def _names_disruption(job: Mapping[str, Any]) -> bool:
    """Whether a rule is about evictions, whatever it does."""
    rules = to_list(to_map(job.get(POLICY)).get("rules"))
    conditions = (
        condition for rule in rules for condition in to_list(to_map(rule).get("onPodConditions"))
    )
    return any(to_map(condition).get("type") == _DISRUPTION for condition in conditions)
