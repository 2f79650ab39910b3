"""ElasticQuotaProfile: the root quota of a tree, generated from the nodes that a selector picks.

Compatible with Koordinator's. The tree and the resources of the quota are in a label and an
annotation (``keys.quota``), the deletion policy in another annotation (``keys.operators``).
"""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from koord.api.keys import operators, quota
from koord.api.model import ATOMIC, Marker, Model, Rule
from koord.api.parse import Problem, format_field
from koord.api.resource import (
    AGE,
    Conditions,
    Int32,
    Int64,
    KeptSpec,
    Names,
    ObservedResources,
    PrinterColumn,
    Resource,
    reason_column,
)

PROFILE_GROUP: Final = "quota.koordinator.sh"
DELETE: Final = "Delete"
RETAIN: Final = "Retain"

_RATIO: Final = r"(1(\.0*)?|0?\.[0-9]*[1-9][0-9]*)?"
_BUILT_IN: Final = (quota.ROOT_QUOTA, quota.SYSTEM_QUOTA, quota.DEFAULT_QUOTA)
_ATOMIC_LIST: Final = Marker({"x-kubernetes-list-type": "atomic"})


class NodeRequirement(Model):
    """One requirement on a label of nodes."""

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

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """The label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label relates to the values."""
    values: (
        Annotated[list[Annotated[str, Field(max_length=63)]], Field(max_length=1024), _ATOMIC_LIST]
        | None
    ) = None
    """For In and NotIn: at least one value; otherwise none."""


class NodeSelector(Model):
    """Selects nodes by labels; all requirements must hold, and an empty one selects every node."""

    markers = (ATOMIC,)

    match_labels: dict[str, str] | None = None
    """Labels and the values that they must have."""
    match_expressions: (
        Annotated[list[NodeRequirement], Field(max_length=32), _ATOMIC_LIST] | None
    ) = None
    """Further requirements on labels."""


class ElasticQuotaProfileSpec(Model):
    """The nodes of a tree of quotas, and the name of its root quota."""

    quota_name: Annotated[
        str,
        Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
        Rule(
            f"!(self in {list(_BUILT_IN)})",
            "quotaName must not be that of a built-in quota; choose another",
            lambda name: name not in _BUILT_IN,
        ),
    ]
    """Name of the generated ElasticQuota, in the namespace of the profile."""
    quota_labels: Annotated[dict[str, str], Field(max_length=64)] | None = None
    """Labels of that ElasticQuota; include is-parent if it is to have children."""
    resource_ratio: (
        Annotated[
            str,
            Field(max_length=32),
            Rule(
                f"self.matches(r'^{_RATIO}$')",
                "resourceRatio must be a decimal above 0 and not above 1, such as '0.9'",
                lambda text: re.fullmatch(_RATIO, text) is not None,
            ),
        ]
        | None
    ) = None
    """The part of the nodes' capacity that is divided, such as "0.9"; all of it by default."""
    node_selector: NodeSelector
    """The nodes of the tree."""


class KeptProfile(Model):
    """The last valid settings of a profile, in the form of the object; the operators' own."""

    spec: KeptSpec
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class ElasticQuotaProfileStatus(Model):
    """The generated quota, and the capacity that it divides."""

    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """Conditions of the profile: Accepted, Ready, NodeOverlap."""
    tree: str | None = None
    """The tree-id of the quota and of all below it."""
    nodes: Int32 | None = None
    """How many nodes are selected."""
    total: ObservedResources | None = None
    """The capacity that is divided."""
    unschedulable: ObservedResources | None = None
    """The part of it on nodes that currently take no pods."""
    last_valid_spec: KeptSpec | None = None
    """The settings in force: those of the spec while valid, else the last valid ones."""


class ElasticQuotaProfile(Resource):
    """Generates the root quota of a tree from nodes."""

    names: ClassVar = Names(
        group=PROFILE_GROUP,
        kind="ElasticQuotaProfile",
        plural="elasticquotaprofiles",
        short=("eqp",),
        namespaced=True,
        max_name=63,
        columns=(
            PrinterColumn("Quota", ".spec.quotaName"),
            PrinterColumn("Tree", ".status.tree", priority=1),
            PrinterColumn("Nodes", ".status.nodes", "integer", "Nodes that are selected."),
            reason_column("Ready"),
            reason_column("Accepted", priority=1),
            AGE,
        ),
    )

    spec: ElasticQuotaProfileSpec
    """The nodes of a tree of quotas, and the name of its root quota."""
    status: ElasticQuotaProfileStatus = ElasticQuotaProfileStatus()
    """The generated quota, and the capacity that it divides."""


def find_policy_problems(annotations: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return the problems of the deletion policy in these annotations."""
    policy = annotations.get(operators.DELETION_POLICY, RETAIN)
    if policy in {DELETE, RETAIN}:
        return ()
    field = format_field(("metadata", "annotations", operators.DELETION_POLICY))
    return (Problem(field, policy, f"must be {DELETE} or {RETAIN}"),)
