"""The part of a pod that the ``patch`` of a ClusterColocationProfile may write.

A policy that wrote an invalid pod would have the API server refuse every pod that it matches. So
what is written is checked here as the API server checks pods, and what is not known here is left
out and named.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from koord.api.model import Model, refuse
from koord.api.result_keys import is_result

_NAME: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_KEY: Final = re.compile(rf"({_SUBDOMAIN}/)?{_NAME}")
_VALUE: Final = re.compile(rf"({_NAME})?")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_MAX_PREFIX: Final = 253
MAX_ITEMS: Final = 64
"""Entries of one list or map; pods have far fewer."""


def is_key(key: str) -> bool:
    """Whether a text is the key of a label."""
    prefix, slash, _ = key.rpartition("/")
    return len(prefix) <= _MAX_PREFIX and bool(_KEY.fullmatch(key)) and (not slash or bool(prefix))


def is_label_value(value: str) -> bool:
    return bool(_VALUE.fullmatch(value))


def check_labels(labels: dict[str, str]) -> dict[str, str]:
    """Refuse what the API server refuses as labels of a pod."""
    for key, value in labels.items():
        if not is_key(key):
            raise refuse("is no key of a label", key)
        _refuse_result(key)
        if not is_label_value(value):
            raise refuse(
                "is no value of a label: at most 63 letters, digits, '-', '_' and '.'", key
            )
    return labels


def check_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """Refuse what the API server refuses as annotations of a pod."""
    for key in annotations:
        if not is_key(key.lower()):
            raise refuse("is no key of an annotation", key)
        _refuse_result(key)
    return annotations


def _refuse_result(key: str) -> None:
    if is_result(key):
        raise refuse("is written by operators alone: koord-protect would refuse the pods", key)


def _check_key(key: str) -> str:
    if not is_key(key):
        raise refuse("is no key of a label")
    return key


def _check_value(value: str) -> str:
    if not is_label_value(value):
        raise refuse("is no value of a label: at most 63 letters, digits, '-', '_' and '.'")
    return value


Key = Annotated[str, Field(max_length=317), AfterValidator(_check_key)]
Value = Annotated[str, Field(max_length=63), AfterValidator(_check_value)]
Labels = Annotated[dict[str, str], Field(max_length=MAX_ITEMS), AfterValidator(check_labels)]
Annotations = Annotated[
    dict[str, Annotated[str, Field(max_length=4096)]],
    Field(max_length=MAX_ITEMS),
    AfterValidator(check_annotations),
]
Namespace = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


def _check_toleration(toleration: "PodToleration") -> "PodToleration":
    exists = toleration.operator == "Exists"
    if exists and toleration.value:
        raise refuse("must be empty with the operator Exists", "value")
    if not exists and not toleration.key:
        raise refuse("must be given, or the operator be Exists", "key")
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        raise refuse("is for the effect NoExecute only", "tolerationSeconds")
    return toleration


class PodToleration(Model):
    """A toleration of a pod."""

    key: Key | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: Value | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None


def _check_requirement(requirement: "NodeTermRequirement") -> "NodeTermRequirement":
    values = requirement.values or []
    match requirement.operator:
        case "In" | "NotIn":
            if not values:
                raise refuse("must be given for In and NotIn", "values")
        case "Exists" | "DoesNotExist":
            if values:
                raise refuse("must be empty for Exists and DoesNotExist", "values")
        case _:
            if len(values) != 1 or not _NUMBER.fullmatch(values[0]):
                raise refuse("must be one whole number for Gt and Lt", "values")
    return requirement


Values = Annotated[list[Value], Field(max_length=1024)]


class NodeTermRequirement(Model):
    """A requirement on a label of nodes."""

    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Values | None = None


class NodeTerm(Model):
    """Requirements on labels of nodes, all of which must hold."""

    match_expressions: (
        Annotated[
            list[Annotated[NodeTermRequirement, AfterValidator(_check_requirement)]],
            Field(max_length=MAX_ITEMS),
        ]
        | None
    ) = None


class PreferredNodes(Model):
    """Nodes that are preferred."""

    weight: Annotated[int, Field(ge=1, le=100)]
    preference: NodeTerm


class RequiredNodes(Model):
    """Nodes of which one of the terms must hold."""

    node_selector_terms: Annotated[list[NodeTerm], Field(min_length=1, max_length=MAX_ITEMS)]


class NodeAffinityPatch(Model):
    """The affinity to nodes."""

    required_during_scheduling_ignored_during_execution: RequiredNodes | None = None
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[list[PreferredNodes], Field(max_length=MAX_ITEMS)] | None
    ) = None


def _check_pods(requirement: "PodTermRequirement") -> "PodTermRequirement":
    if (requirement.operator in {"In", "NotIn"}) != bool(requirement.values):
        raise refuse("must be given for In and NotIn, and for nothing else", "values")
    return requirement


class PodTermRequirement(Model):
    """A requirement on a label of pods or namespaces."""

    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Values | None = None


class PodTermSelector(Model):
    """Selects pods or namespaces by labels."""

    match_labels: Labels | None = None
    match_expressions: (
        Annotated[
            list[Annotated[PodTermRequirement, AfterValidator(_check_pods)]],
            Field(max_length=MAX_ITEMS),
        ]
        | None
    ) = None


class PodTerm(Model):
    """Pods, and the domain of nodes that they are looked for in."""

    label_selector: PodTermSelector | None = None
    namespaces: Annotated[list[Namespace], Field(max_length=MAX_ITEMS)] | None = None
    namespace_selector: PodTermSelector | None = None
    topology_key: Key


class PreferredPods(Model):
    """Pods that are preferred near, or far."""

    weight: Annotated[int, Field(ge=1, le=100)]
    pod_affinity_term: PodTerm


class PodAffinityPatch(Model):
    """The affinity or anti-affinity to pods."""

    required_during_scheduling_ignored_during_execution: (
        Annotated[list[PodTerm], Field(max_length=MAX_ITEMS)] | None
    ) = None
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[list[PreferredPods], Field(max_length=MAX_ITEMS)] | None
    ) = None


class AffinityPatch(Model):
    """Affinities of a pod."""

    node_affinity: NodeAffinityPatch | None = None
    pod_affinity: PodAffinityPatch | None = None
    pod_anti_affinity: PodAffinityPatch | None = None


class PatchedMetadata(Model):
    """Labels and annotations."""

    labels: Labels | None = None
    annotations: Annotations | None = None


class PatchedSpec(Model):
    """What is written of the spec of a pod."""

    tolerations: (
        Annotated[
            list[Annotated[PodToleration, AfterValidator(_check_toleration)]],
            Field(max_length=MAX_ITEMS),
        ]
        | None
    ) = None
    node_selector: Labels | None = None
    affinity: AffinityPatch | None = None


class PodPatchFields(Model):
    """The known part of a patch."""

    metadata: PatchedMetadata | None = None
    spec: PatchedSpec | None = None


_KNOWN: Final[Mapping[str, Any]] = {
    "metadata": {"labels": None, "annotations": None},
    "spec": {
        "tolerations": None,
        "nodeSelector": None,
        "affinity": {
            name: {
                f"{when}DuringSchedulingIgnoredDuringExecution": None
                for when in ("required", "preferred")
            }
            for name in ("nodeAffinity", "podAffinity", "podAntiAffinity")
        },
    },
}


def find_unknown_fields(
    patch: Mapping[str, Any], fields: Mapping[str, Any] = _KNOWN, at: str = ""
) -> Iterator[str]:
    """Yield the paths in a patch that are not written, such as ``spec.containers``."""
    for name, value in patch.items():
        path = f"{at}.{name}" if at else str(name)
        if name not in fields:
            yield path
        elif fields[name] is not None and isinstance(value, Mapping):
            yield from find_unknown_fields(value, fields[name], path)
