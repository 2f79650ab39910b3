"""Where objects of each kind have their pod templates. Knows nothing of gangs and schedulers."""

from collections.abc import Iterator
from typing import Any, Final

Document = dict[str, Any]
"""An object as it was written."""

_REPLICA_SPECS: Final = ("pytorch", "tf", "xgb", "paddle", "jax", "mpi")
_TEMPLATE: Final = ("spec.template",)
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
