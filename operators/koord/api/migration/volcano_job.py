"""A Volcano Job as Indexed Jobs, one for each task."""

from copy import deepcopy
from typing import Any

from koord.api.migration.documents import Document
from koord.api.migration.table import rows_of
from koord.api.migration.wish import UNKNOWN, Say, Wish, advice_of, take


def read_volcano_job(document: Document, say: Say) -> Wish:
    """Return what the job asks for as a whole."""
    rows = rows_of("Job.batch.volcano.sh")
    wish = Wish()
    spec = document.get("spec") or {}
    for key, value in spec.items():
        row = rows.get(key)
        if row is None:
            say(f"spec.{key}", UNKNOWN)
        elif value not in ([], {}, None):
            take(wish, row._replace(key=f"spec.{key}"), value, say)
    tasks = spec.get("tasks") or ()
    if wish.minimum is None:
        wish.minimum = sum(task.get("minAvailable", task.get("replicas", 1)) for task in tasks)
    wish.sub_groups = [
        {"name": task["name"], "minMember": task["minAvailable"]}
        for task in tasks
        if "minAvailable" in task
    ]
    return wish


def make_jobs(document: Document, wish: Wish, say: Say) -> list[Document]:
    """Return a Job for each task; their templates have not opted in yet."""
    return [_make_job(document, task, wish, say) for task in (document.get("spec") or {})["tasks"]]


def _make_job(document: Document, task: Document, wish: Wish, say: Say) -> Document:
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
    if any(sub_group["name"] == task["name"] for sub_group in wish.sub_groups):
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
