"""How many pods an object of several roles makes at once: the gang that it is."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from koord.api.workloads import Document, find_templates, find_values

_OUTSIDERS: Final = ("Evaluator", "AIMaster")
"""Roles that the others do not need in order to start."""


class Size(NamedTuple):
    """How many members the gang of an object needs; which of its templates are members."""

    minimum: int
    members: list[Document]


def _count(value: Any, default: int = 1) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def _active(spec: Document) -> int:
    """Return how many pods a Job has at once."""
    parallelism = _count(spec.get("parallelism"))
    return min(parallelism, _count(spec.get("completions"), parallelism))


def _size_job(document: Document) -> Size:
    return Size(_active(document["spec"]), find_templates(document))


def _size_job_set(document: Document) -> Size | None:
    jobs = list(find_values(document, "spec.replicatedJobs[]"))
    if any("dependsOn" in job for job in jobs) or "startupPolicy" in document["spec"]:
        return None  # what is created only later cannot be waited for
    pods = (
        _count(job.get("replicas")) * _active(next(find_values(job, "template.spec"), {}))
        for job in jobs
    )
    return Size(sum(pods), find_templates(document))


def _size_replicas(document: Document) -> Size:
    spec = document["spec"]
    roles = next(value for key, value in spec.items() if key.endswith("ReplicaSpecs"))
    elastic = spec.get("elasticPolicy") or {}
    members, minimum = [], 0
    for role, role_spec in roles.items():
        if role == "Launcher" and spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
            continue
        if role in _OUTSIDERS:
            continue
        replicas = _count(role_spec.get("replicas"))
        if role == "Worker":
            replicas = _count(elastic.get("minReplicas"), replicas)
        minimum += replicas
        members += [role_spec["template"]] if "template" in role_spec else []
    return Size(minimum, members)


def _size_ray(document: Document) -> Size:
    spec = document["spec"]
    spec = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    minimum = 1
    for group in find_values(spec, "workerGroupSpecs[]"):
        least = _count(group.get("minReplicas"), 0)
        replicas = max(_count(group.get("replicas")), least)
        if spec.get("enableInTreeAutoscaling"):
            replicas = least
        if not group.get("suspend"):
            minimum += replicas * _count(group.get("numOfHosts"))
    return Size(minimum, find_templates(document))


_SIZES: Final[dict[str, Callable[[Document], Size | None]]] = {
    "JobSet": _size_job_set,
    "RayCluster": _size_ray,
    "RayJob": _size_ray,
    **dict.fromkeys(
        ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), _size_replicas
    ),
}


def size_of(document: Document, *, with_jobs: bool = False) -> Size | None:
    """Return the gang that an object of several roles is; with ``with_jobs`` plain Jobs, too."""
    kind = str(document.get("kind"))
    if kind == "Job" and with_jobs:
        return _size_job(document)
    find = _SIZES.get(kind)
    try:
        return find(document) if find is not None else None
    except (AttributeError, KeyError, StopIteration, TypeError):
        return None  # the server refuses an object of such a form
