"""The common parts of custom resources: names, metadata, and columns of ``kubectl get``.

The parts that Kubernetes itself defines and that our resources embed (conditions, references,
selectors, taints, resource lists) stand here, too. No rule of scheduling does.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from koord.api.model import ATOMIC, ListMap, Marker, Model, Rule, refuse
from koord.api.quantity import (
    DURATION_PATTERN,
    MAX_TEXT,
    Quantity,
    is_positive_duration,
    to_quantity,
)

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

MAX_RESOURCES: Final = 64
"""Resource names in one list; quotas and devices have far fewer."""

QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$"
)


class _QuantitySchema:
    """The JSON schema of a `Quantity`: a string or an integer."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            to_quantity,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda quantity: quantity.text
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "maxLength": MAX_TEXT,
            "x-kubernetes-int-or-string": True,
        }


Int32 = Annotated[int, Marker({"format": "int32"})]
Int64 = Annotated[int, Marker({"format": "int64"})]


def _refuse_numbers(value: Any) -> Any:
    """Refuse what pydantic takes for seconds since the epoch: a time of the API is a text."""
    if isinstance(value, int | float) or (isinstance(value, str) and "T" not in value.upper()):
        raise refuse("must be a time such as 2026-01-31T12:00:00Z")
    return value


Time = Annotated[datetime, Field(strict=False), BeforeValidator(_refuse_numbers)]


def to_time(seconds: float) -> datetime:
    """Return seconds since the epoch as a time of the API, which has whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC)


ResourceQuantity = Annotated[Quantity, _QuantitySchema()]


def _refuse_negative(quantity: Quantity) -> Quantity:
    if quantity.nano < 0:
        raise refuse("a resource quantity must not be negative")
    return quantity


# Bounds instead of a rule: servers before 1.34 assume that a quantity has up to three megabytes,
# and reject a CEL rule on each as too costly.
_NOT_NEGATIVE: Final = Marker(
    {"minimum": 0, "pattern": QUANTITY_PATTERN.replace(r"(\+|-)?", r"\+?", 1)}
)
ResourceList = Annotated[
    dict[str, Annotated[ResourceQuantity, AfterValidator(_refuse_negative), _NOT_NEGATIVE]],
    Field(max_length=MAX_RESOURCES),
]
"""Written by users: resource name to quantity, not negative."""
ObservedResources = dict[str, ResourceQuantity]
"""Reported by an operator in a status."""
Duration = Annotated[
    str,
    Field(max_length=MAX_TEXT),
    Rule(
        f"self.matches('^{DURATION_PATTERN}$')",
        "must be a duration such as 90s, 15m or 1h30m",
        is_positive_duration,
    ),
]
"""A duration of Go's time.ParseDuration without sign."""
KeptSpec = dict[str, Any]
"""The last valid spec, as written; it survives a restart of the operator."""


class ObjectMeta(Model):
    """The standard metadata fields that the operators read."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] = Field(default_factory=list)
    owner_references: list[dict[str, Any]] = Field(default_factory=list)
    managed_fields: list[dict[str, Any]] = Field(default_factory=list)
    self_link: str = ""


class Condition(Model):
    """One observed aspect of the state of an object."""

    type: Annotated[
        str,
        Field(
            max_length=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    """Type of the condition in CamelCase."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    """Why, as one CamelCase word."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, as a sentence with the numbers in it."""
    last_transition_time: Time
    """When the status last changed."""
    observed_generation: Annotated[int, Field(ge=0), Marker({"format": "int64"})] | None = None
    """The metadata.generation that this was observed at."""


Conditions = Annotated[list[Condition], ListMap(("type",))]


class ObjectReference(Model):
    """A reference to an object; only the fields that are set are compared."""

    markers = (ATOMIC,)

    api_version: str | None = None
    """API version of the object."""
    kind: str | None = None
    """Kind of the object."""
    namespace: str | None = None
    """Namespace of the object."""
    name: str | None = None
    """Name of the object."""
    uid: str | None = None
    """UID of the object."""
    resource_version: str | None = None
    """Resource version of the object when the reference was made."""
    field_path: str | None = None
    """A part of the object, such as spec.containers{main}."""


class LabelSelectorRequirement(Model):
    """One requirement on a label."""

    key: str
    """The label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Relation of the label to the values."""
    values: Annotated[list[str], Marker({"x-kubernetes-list-type": "atomic"})] | None = None
    """For In and NotIn: at least one value; otherwise none."""


class LabelSelector(Model):
    """Selects by labels; all requirements must hold, and an empty selector matches everything."""

    markers = (ATOMIC,)

    match_labels: dict[str, str] | None = None
    """Labels and their required values."""
    match_expressions: (
        Annotated[list[LabelSelectorRequirement], Marker({"x-kubernetes-list-type": "atomic"})]
        | None
    ) = None
    """Further requirements on labels."""


class TaintSpec(Model):
    """A taint; pods need a toleration for it."""

    key: str
    """The taint key."""
    value: str | None = None
    """The taint value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """Effect on pods that do not tolerate the taint."""
    time_added: Time | None = None
    """When the taint was added."""


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of ``kubectl get``; priority 1 is shown with ``-o wide`` only."""

    name: str
    json_path: str
    type: Literal["string", "integer", "date", "boolean"] = "string"
    description: str = ""
    priority: int = 0


AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date")


def reason_column(condition: str, *, name: str = "", priority: int = 0) -> PrinterColumn:
    path = f'.status.conditions[?(@.type=="{condition}")].reason'
    return PrinterColumn(
        name or condition, path, description=f"Why {condition} is so.", priority=priority
    )


@dataclass(frozen=True, slots=True)
class Names:
    """The names and the scope of a custom resource."""

    group: str
    kind: str
    plural: str
    short: tuple[str, ...]
    namespaced: bool
    columns: tuple[PrinterColumn, ...]
    version: str = "v1alpha1"
    max_name: int = 253
    """Longest name of an object; shorter if it is used as a label value."""
    approval: str = ""
    """Approval of a group below k8s.io, which the API server requires."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{self.group}"


class Resource(Model):
    """Base of custom resources, with `names` and the fields ``spec`` and ``status``."""

    names: ClassVar[Names]

    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()

    @field_validator("api_version")
    @classmethod
    def _check_api_version(cls, value: str) -> str:
        if value != cls.names.api_version:
            raise refuse(f"must be {cls.names.api_version} for kind {cls.names.kind}")
        return value

    @field_validator("metadata")
    @classmethod
    def _check_name(cls, value: ObjectMeta) -> ObjectMeta:
        if value.name and not _NAME.fullmatch(value.name):
            raise refuse("must be lower case letters, digits, '-' and '.'", "name")
        if len(value.name) > cls.names.max_name:
            raise refuse(f"must be at most {cls.names.max_name} characters", "name")
        return value
