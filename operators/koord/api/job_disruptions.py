"""Whether Jobs survive it when their pods are evicted, for another gang or from a drained node.

A Job counts evicted pods as failed: a gang of eight is beyond the default backoffLimit of six after
its first preemption. With a ``podFailurePolicy`` that ignores ``DisruptionTarget`` it makes them
again instead. Kubernetes accepts one only for pods with ``restartPolicy: Never``.
"""

from collections.abc import Iterator, Mapping
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


def make_rule() -> dict[str, Any]:
    return {"action": "Ignore", "onPodConditions": [{"type": _DISRUPTION}]}


def ignore_disruptions(document: Document) -> None:
    """Let the Jobs of an object ignore evictions, unless they say themselves what these are."""
    for _, job in find_jobs(document):
        template = job.get("template") or {}
        if not _opts_in(template) or not _never_restarts(template) or _names_disruption(job):
            continue
        policy = job.setdefault(POLICY, {})
        policy["rules"] = [make_rule(), *(policy.get("rules") or ())]


def find_disruption_problems(document: Document) -> Iterator[Problem]:
    """Yield for each Job of an object that opts in what ends it with its first preemption."""
    for path, job in find_jobs(document):
        template = job.get("template")
        if not isinstance(template, Mapping) or not _opts_in(template) or _names_disruption(job):
            continue
        if _never_restarts(template):
            yield Problem(f"{path}.{POLICY}", "", _ADD)
        elif value := to_map(template.get("spec")).get("restartPolicy"):
            yield Problem(f"{path}.template.spec.restartPolicy", str(value), _NEVER)


def _opts_in(template: Mapping[str, Any]) -> bool:
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
