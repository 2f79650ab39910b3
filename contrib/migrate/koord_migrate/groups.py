"""PodGroups and Volcano Jobs: what they ask for, and an Indexed Job for each task of such a Job."""

from copy import deepcopy
from typing import Any, Final

from koord.api.workloads import Document
from koord_migrate.requested_settings import (
    UNKNOWN,
    RequestedSettings,
    Say,
    advice_of,
    layer_of,
    read_keys,
    take,
)
from koord_migrate.table import Action, rows_of, rows_of_keys

POD_GROUPS: Final = ("scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai")
"""Their API groups."""
_LEVELS: Final = {
    "requiredTopologyLevel": "MustGather",
    "preferredTopologyLevel": "PreferGather",
}
_SUB_GROUP_FIELDS: Final = {
    "name": "name",
    "parent": "parent",
    "minMember": "minMember",
    "minSubGroup": "minSubGroups",
}
_CONSTRAINT: Final = "topologyConstraint"


def read_pod_group(document: Document, say: Say) -> RequestedSettings:
    """Return what a PodGroup asks for, with its labels and annotations."""
    group = str(document["apiVersion"]).partition("/")[0]
    rows = rows_of(f"PodGroup.{group}")
    settings = read_keys(deepcopy(document["metadata"]), rows_of_keys(), say)
    for key, value in (document.get("spec") or {}).items():
        row = rows.get(key)
        if row is None:
            say(f"spec.{key}", UNKNOWN)
        elif row.action is Action.TASK_MINIMUMS:
            settings.sub_groups = [{"name": k, "minMember": n} for k, n in value.items()]
        elif row.action is Action.SUB_GROUPS:
            settings.sub_groups = [_read_sub_group(sub_group, say) for sub_group in value]
        elif row.action is Action.TOPOLOGY:
            settings.gather = _read_levels(value)
        else:
            take(settings, row._replace(key=f"spec.{key}"), value, say)
    return settings


def _read_sub_group(group: Document, say: Say) -> Document:
    fields = _SUB_GROUP_FIELDS.items()
    made = {ours: group[theirs] for theirs, ours in fields if group.get(theirs) is not None}
    for key in sorted(group.keys() - _SUB_GROUP_FIELDS.keys() - {_CONSTRAINT}):
        say(f"spec.subGroups.{key}", UNKNOWN)
    for level in _read_levels(group.get(_CONSTRAINT) or {}):
        if level["strategy"] == "MustGather":
            made["layer"] = level["layer"]
        else:
            say(
                f"spec.subGroups.{_CONSTRAINT}",
                "a sub-group has required layers only: require it, or do without",
            )
    return made


def _read_levels(constraint: Any) -> list[Document]:
    return [
        {"layer": layer_of(constraint[key]), "strategy": strategy}
        for key, strategy in _LEVELS.items()
        if constraint.get(key)
    ]


def read_volcano_job(document: Document, say: Say) -> RequestedSettings:
    """Return what the job asks for as a whole."""
    rows = rows_of("Job.batch.volcano.sh")
    settings = RequestedSettings()
    spec = document.get("spec") or {}
    for key, value in spec.items():
        row = rows.get(key)
        if row is None:
            say(f"spec.{key}", UNKNOWN)
        elif value not in ([], {}, None):
            take(settings, row._replace(key=f"spec.{key}"), value, say)
    tasks = spec.get("tasks") or ()
    if settings.minimum is None:
        settings.minimum = sum(task.get("minAvailable", task.get("replicas", 1)) for task in tasks)
    settings.sub_groups = [
        {"name": task["name"], "minMember": task["minAvailable"]}
        for task in tasks
        if "minAvailable" in task
    ]
    return settings


def make_jobs(document: Document, settings: RequestedSettings, say: Say) -> list[Document]:
    """Return a Job for each task; their templates have not opted in yet."""
    return [
        _make_job(document, task, settings, say) for task in (document.get("spec") or {})["tasks"]
    ]


def _make_job(
    document: Document, task: Document, settings: RequestedSettings, say: Say
) -> Document:
    translated = {"name", "replicas", "minAvailable", "template", "maxRetry"}
    rows = rows_of("tasks")
    for key in sorted(task.keys() - translated):
        say(f"spec.tasks.{key}", advice_of(rows[key]) if key in rows else UNKNOWN)
    metadata = {key: deepcopy(value) for key, value in document["metadata"].items()}
    metadata["name"] = f"{document['metadata']['name']}-{task['name']}"
    template = deepcopy(task["template"])
    template.setdefault("spec", {}).setdefault("restartPolicy", "Never")
    if template["spec"]["restartPolicy"] == "Always":
        template["spec"]["restartPolicy"] = "OnFailure"
    if any(sub_group["name"] == task["name"] for sub_group in settings.sub_groups):
        annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
        annotations["volcano.sh/task-spec"] = task["name"]  # read again with the other keys
    size = task.get("replicas", 1)
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "parallelism": size,
        "completions": size,
        "template": template,
    }
    for theirs, ours in (("maxRetry", "backoffLimit"), ("ttlSecondsAfterFinished", "")):
        source = task if theirs in task else document["spec"]
        if theirs in source:
            spec[ours or theirs] = source[theirs]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
