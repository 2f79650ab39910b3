"""ClusterColocationProfile: what is written into new pods that selectors pick.

Compatible with Koordinator's. Values that would have the API server refuse the pods are refused
here: a profile must never cost a pod its creation. What the generated policies can and cannot
express is decided elsewhere.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from koord.api.keys.profiles import SKIP_RESOURCES
from koord.api.model import ATOMIC, Marker, Model, Rule, refuse
from koord.api.parse import InvalidObject, parse
from koord.api.profile_patch import (
    MAX_ITEMS,
    PodPatchFields,
    check_annotations,
    check_labels,
    is_key,
    is_label_value,
)
from koord.api.resource import (
    AGE,
    Conditions,
    Int32,
    Int64,
    KeptSpec,
    Names,
    PrinterColumn,
    Resource,
    reason_column,
)
from koord.api.result_keys import is_result

_ATOMIC_LIST: Final = Marker({"x-kubernetes-list-type": "atomic"})
_PERCENT: Final = re.compile(r"(100|[1-9]?[0-9])%")


class _ProbabilitySchema:
    """The JSON schema of a probability: a number of percent, or a text that ends in %."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_check_probability)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "maximum": 100,
            "maxLength": 4,
            "pattern": "^(100|[1-9]?[0-9])%$",
            "x-kubernetes-int-or-string": True,
        }


def _check_probability(value: Any) -> int | str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100
    if is_number or (isinstance(value, str) and _PERCENT.fullmatch(value)):
        probability: int | str = value
        return probability
    raise refuse("must be 0 to 100, or a text such as 30%")


def parse_probability(value: int | str | None) -> int:
    """Return a valid probability in percent; 100 if none is given."""
    if value is None:
        return 100
    return int(value.removesuffix("%")) if isinstance(value, str) else value


def _check_key(key: str) -> str:
    if not is_key(key):
        raise refuse("is no key of a label")
    return key


def _check_values(values: list[str]) -> list[str]:
    for place, value in enumerate(values):
        if not is_label_value(value):
            raise refuse("is no value of a label", place)
    return values


def _refuse_result(old: str, new: str) -> None:
    if is_result(new):
        raise refuse("maps to a key that operators write alone", old)


def _check_label_keys(keys: dict[str, str]) -> dict[str, str]:
    for old, new in keys.items():
        if not is_key(old) or not is_key(new):
            raise refuse("is no key of a label, or maps to none", old)
        _refuse_result(old, new)
    return keys


def _check_annotation_keys(keys: dict[str, str]) -> dict[str, str]:
    for old, new in keys.items():
        if not is_key(old.lower()) or not is_key(new.lower()):
            raise refuse("is no key of an annotation, or maps to none", old)
        _refuse_result(old, new)
    return keys


def _check_suffixes(suffixes: dict[str, str]) -> dict[str, str]:
    for key, suffix in suffixes.items():
        if not is_key(key):
            raise refuse("is no key of a label", key)
        if not suffix or not is_label_value(f"a{suffix}"):
            raise refuse("cannot end the value of a label", key)
    return suffixes


def _check_patch(patch: dict[str, Any]) -> dict[str, Any]:
    parsed = parse(PodPatchFields, patch)
    if isinstance(parsed, InvalidObject):
        raise refuse("; ".join(map(str, parsed.problems)))
    return patch


LabelText = Annotated[
    str, Field(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
]
KeyText = Annotated[str, Field(min_length=1, max_length=317)]


class PodLabelRequirement(Model):
    """One requirement on a label."""

    rules = (
        Rule(
            "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 "
            ": !has(self.values) || self.values.size() == 0",
            "values must be given for In and NotIn, and for nothing else",
            lambda requirement: (
                bool(requirement.values) == (requirement.operator in {"In", "NotIn"})
            ),
        ),
    )

    key: Annotated[KeyText, AfterValidator(_check_key)]
    """The label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label relates to the values."""
    values: (
        Annotated[
            list[Annotated[str, Field(max_length=63)]],
            Field(max_length=1024),
            AfterValidator(_check_values),
            _ATOMIC_LIST,
        ]
        | None
    ) = None
    """For In and NotIn: at least one value; otherwise none."""


class PodLabelSelector(Model):
    """Selects by labels; all requirements must hold, and an empty selector selects everything."""

    markers = (ATOMIC,)

    match_labels: (
        Annotated[dict[str, LabelText], Field(max_length=MAX_ITEMS), AfterValidator(check_labels)]
        | None
    ) = None
    """Labels and the values that they must have."""
    match_expressions: (
        Annotated[list[PodLabelRequirement], Field(max_length=32), _ATOMIC_LIST] | None
    ) = None
    """Further requirements on labels."""


class ClusterColocationProfileSpec(Model):
    """Which pods are changed, and what is written into them when they are created."""

    namespace_selector: PodLabelSelector | None = None
    """The namespaces of the pods; all without it. The namespaces kube-system and that of the
    operators are never among them."""
    selector: PodLabelSelector | None = None
    """The pods, by their labels as they are created; all without it."""
    probability: Annotated[int | str, _ProbabilitySchema()] | None = None
    """How many percent of the pods are changed, as 30 or "30%"; all without it. Other than 0 and
    100 need probabilityScope Owner."""
    probability_scope: Literal["Pod", "Owner"] | None = None
    """Owner: all pods of an owner, such as a Job, are changed or none, which its uid decides. Pods
    without owner are not changed then. Pod, the default: each pod for itself, which policies cannot
    decide."""
    qos_class: Literal["LSE", "LSR", "LS", "BE", "SYSTEM"] | None = None
    """The label koordinator.sh/qosClass."""
    priority_class_name: (
        Annotated[
            str,
            Field(
                max_length=253,
                pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
            ),
        ]
        | None
    ) = None
    """The PriorityClass; its value and preemption policy are written, too. No pod is changed while
    there is no such class."""
    koordinator_priority: Annotated[Int32, Field(ge=0)] | None = None
    """The label koordinator.sh/priority: the order of pods of the same priority."""
    labels: (
        Annotated[dict[str, LabelText], Field(max_length=MAX_ITEMS), AfterValidator(check_labels)]
        | None
    ) = None
    """Labels."""
    annotations: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=4096)]],
            Field(max_length=MAX_ITEMS),
            AfterValidator(check_annotations),
        ]
        | None
    ) = None
    """Annotations."""
    label_keys_mapping: (
        Annotated[
            dict[str, KeyText], Field(max_length=MAX_ITEMS), AfterValidator(_check_label_keys)
        ]
        | None
    ) = None
    """Keys of labels, and the keys that get the same value; what is not there is not copied."""
    annotation_keys_mapping: (
        Annotated[
            dict[str, KeyText], Field(max_length=MAX_ITEMS), AfterValidator(_check_annotation_keys)
        ]
        | None
    ) = None
    """Keys of annotations, and the keys that get the same value."""
    label_suffixes: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=63)]],
            Field(max_length=MAX_ITEMS),
            AfterValidator(_check_suffixes),
        ]
        | None
    ) = None
    """Keys of labels, and what is appended to their values; one that would be too long stays."""
    scheduler_name: (
        Annotated[str, Field(max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")] | None
    ) = None
    """The scheduler."""
    patch: Annotated[dict[str, Any], AfterValidator(_check_patch)] | None = None
    """Labels, annotations, tolerations, nodeSelector and affinity of the pod; lists replace what is
    there. Other fields are left out, which the condition Complete says."""


class ClusterColocationProfileStatus(Model):
    """What has become of the profile."""

    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """Conditions of the profile: Accepted, Published, Complete."""
    policy: str | None = None
    """The MutatingAdmissionPolicy that changes the pods."""
    last_valid_spec: KeptSpec | None = None
    """The settings in force: those of the spec while valid, else the last valid ones."""


class ClusterColocationProfile(Resource):
    """Writes labels, QoS, priority and more into new pods."""

    names: ClassVar = Names(
        group="config.koordinator.sh",
        kind="ClusterColocationProfile",
        plural="clustercolocationprofiles",
        short=("ccp",),
        namespaced=False,
        columns=(
            reason_column("Published"),
            PrinterColumn("Policy", ".status.policy", priority=1),
            reason_column("Accepted", priority=1),
            AGE,
        ),
    )

    spec: ClusterColocationProfileSpec = ClusterColocationProfileSpec()
    """Which pods are changed, and what is written into them."""
    status: ClusterColocationProfileStatus = ClusterColocationProfileStatus()
    """What has become of the profile."""


def skips_resources(annotations: Mapping[str, str]) -> bool:
    """Whether a profile says that CPU and memory of its pods stay as they are."""
    return SKIP_RESOURCES in annotations
