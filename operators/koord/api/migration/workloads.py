"""Where objects have their pod templates, and how many pods they make at once."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from koord.api.migration.documents import Document

_REPLICA_SPECS: Final = ("pytorch", "tf", "xgb", "paddle", "jax", "mpi")
_TEMPLATE: Final = ("spec.template",)
_OUTSIDERS: Final = ("Evaluator", "AIMaster")
"""Roles that the others do not need in order to start."""
_RAY: Final = ("headGroupSpec.template", "workerGroupSpecs[].template")


def _under(prefix: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{prefix}.{path}" for path in paths)


PATHS: Final = {
    "Job": _TEMPLATE,
    "Deployment": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "CronJob": ("spec.jobTemplate.spec.template",),
    "JobSet": ("spec.replicatedJobs[].template.spec.template",),
    **dict.fromkeys(
        ("TrainingRuntime", "ClusterTrainingRuntime"),
        ("spec.template.spec.replicatedJobs[].template.spec.template",),
    ),
    **{
        f"{kind}Job": (f"spec.{name}ReplicaSpecs.*.template",)
        for name, kind in zip(
            _REPLICA_SPECS, ("PyTorch", "TF", "XGBoost", "Paddle", "JAX", "MPI"), strict=True
        )
    },
    "RayCluster": _under("spec", _RAY),
    "RayJob": _under("spec.rayClusterSpec", _RAY),
    "RayService": _under("spec.rayClusterConfig", _RAY),
    "LeaderWorkerSet": _under("spec.leaderWorkerTemplate", ("leaderTemplate", "workerTemplate")),
}
"""Paths of the pod templates by kind; ``[]`` is every entry of a list, ``*`` every value."""


def find_values(root: Any, path: str) -> Iterator[Document]:
    """Yield the objects at a path, those that exist."""
    head, _, remaining_path = path.partition(".")
    if not isinstance(root, dict):
        return
    if head == "*":
        values = list(root.values())
    else:
        value = root.get(head.removesuffix("[]"))
        values = value if head.endswith("[]") and isinstance(value, list) else [value]
    for value in values:
        if remaining_path:
            yield from find_values(value, remaining_path)
        elif isinstance(value, dict):
            yield value


def find_templates(document: Document) -> list[Document]:
    """Return what has the metadata and the spec of pods: templates, or the pod itself."""
    kind = document.get("kind")
    if kind == "Pod":
        return [document]
    paths = PATHS.get(str(kind), ())
    return [template for path in paths for template in find_values(document, path)]


_JOBS: Final = ("Job", "CronJob", "JobSet", "TrainingRuntime", "ClusterTrainingRuntime")
"""Kinds whose pod templates are those of Jobs of Kubernetes."""


def find_jobs(document: Document) -> Iterator[tuple[str, Document]]:
    """Yield the path and the spec of each Job of Kubernetes that an object is or makes."""
    kind, version = str(document.get("kind")), str(document.get("apiVersion", ""))
    if kind not in _JOBS or (kind == "Job" and not version.startswith("batch/")):
        return
    for path in PATHS[kind]:
        place = path.removesuffix(".template")
        yield from ((place, job) for job in find_values(document, place))


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
