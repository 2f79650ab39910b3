"""PodGroup: pods that start together.

Compatible with the PodGroup of Koordinator and of scheduler-plugins (same group, version and
fields); all additions are in the status and in annotations. Knows no rules of gangs.
"""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from koord.api.model import ListMap, Model, Rule
from koord.api.resource import (
    AGE,
    Conditions,
    Int32,
    Int64,
    Names,
    PrinterColumn,
    Resource,
    ResourceList,
    Time,
    reason_column,
)

SIGS_GROUP: Final = "scheduling.sigs.k8s.io"
SIGS_APPROVAL: Final = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"
MAX_LABEL: Final = 63
"""The longest value that a label takes."""
MAX_MEMBERS: Final = 100_000
"""More pods than the largest supported cluster runs."""

_AT_LEAST_ONE: Final = Rule(
    "self >= 1",
    "minMember must be at least 1: a group that needs no pod never starts",
    lambda count: count >= 1,
)
_AT_MOST_A_CLUSTER: Final = Rule(
    f"self <= {MAX_MEMBERS}",
    f"minMember must be at most {MAX_MEMBERS}: no cluster runs more pods",
    lambda count: count <= MAX_MEMBERS,
)
_TIMEOUT_NOT_NEGATIVE: Final = Rule(
    "self >= 0",
    "scheduleTimeoutSeconds must not be negative; leave it out for the default",
    lambda seconds: seconds >= 0,
)


class PodGroupSpec(Model):
    """What the group needs to start."""

    min_member: Annotated[Int32, _AT_LEAST_ONE, _AT_MOST_A_CLUSTER]
    """How many members must be placed together; below that, none starts."""
    min_resources: ResourceList | None = None
    """Resources the whole group is expected to need. Informational: quota and fit use the pods."""
    schedule_timeout_seconds: (
        Annotated[Int32, Field(le=2**31 - 1), _TIMEOUT_NOT_NEGATIVE] | None
    ) = None
    """How long the complete group may wait to be placed before it is reported as timed out.

    Absent or 0 means the default, 600 seconds. Placement is still tried after that.
    """


class GroupMembers(Model):
    """Numbers of members by state."""

    total: Int32 = 0
    """Members that the group expects; at least minMember."""
    present: Int32 = 0
    """Pods of the group that exist and have not ended."""
    held: Int32 = 0
    """Pods held by the placement gate."""
    planned: Int32 = 0
    """Pods that have a node in the current plan."""
    bound: Int32 = 0
    """Pods that have a node."""
    running: Int32 = 0
    """Pods in phase Running."""
    succeeded: Int32 = 0
    """Pods in phase Succeeded."""
    failed: Int32 = 0
    """Pods in phase Failed."""
    terminating: Int32 = 0
    """Pods that are being deleted."""


class SubGroupMembers(Model):
    """Numbers of members of one sub-group, including those of sub-groups below it."""

    name: Annotated[str, Field(max_length=MAX_LABEL)]
    """Name of the sub-group."""
    min_member: Int32 = 0
    """How many members it needs."""
    present: Int32 = 0
    """Members that count: they have ended well, are placed, or are ours to place."""
    placed: Int32 = 0
    """Those of them that have a place, or have ended well."""
    complete: bool = False
    """Whether it has its members, and enough of the sub-groups below it are complete."""


class GroupPlacement(Model):
    """Where the group was placed in the network topology."""

    topology: str | None = None
    """Name of the ClusterNetworkTopology."""
    layer: str | None = None
    """The layer that holds all members in one domain."""
    domain: str | None = None
    """That domain, as a path from the top layer."""
    nodes: Int32 | None = None
    """How many nodes the members use."""
    domains_per_layer: dict[str, Int32] | None = None
    """Layer name to the number of its domains that are used."""
    optimal: bool | None = None
    """Whether no better placement existed when this one was made."""
    gap: str | None = None
    """What a better placement may save, if this one is not known to be optimal."""


class GroupEpisode(Model):
    """One thing that happened to the group."""

    time: Time
    """When it happened."""
    what: Annotated[str, Field(max_length=64)]
    """Reclaimed, Preempted, Restarted, Degraded or TimedOut."""
    why: Annotated[str, Field(max_length=1024)] | None = None
    """Why, with the numbers."""
    by: Annotated[str, Field(max_length=512)] | None = None
    """For which unit members were evicted, where they were."""


class GroupRunSubGroup(Model):
    """Members of one sub-group."""

    name: Annotated[str, Field(max_length=253)]
    """The sub-group, as in the annotation of the PodGroup."""
    succeeded: Int32 = 0
    """How many of them have succeeded."""


class GroupRun(Model):
    """Members that belong together: of one controller, and released together."""

    controller: Annotated[str, Field(max_length=64)] = ""
    """The uid of the controller of the pods; empty for none."""
    start: Annotated[str, Field(max_length=64)] = ""
    """Identifies the pods that were released together; empty for none."""
    size: Int32 = 0
    """How many were released together."""
    succeeded: Int32 = 0
    """How many of the members have succeeded, those that are removed by now included."""
    sub_groups: Annotated[list[GroupRunSubGroup], Field(max_length=256)] | None = None
    """How many of those are of which sub-group; members of no sub-group are not listed."""


class ReservedPlace(Model):
    """Room on one node."""

    node: Annotated[str, Field(max_length=253)]
    """The node."""
    pods: Int32 = 0
    """How many members it is for."""


class QueueReservation(Model):
    """Room that is reserved for the group while it waits."""

    kind: Annotated[str, Field(max_length=16)]
    """Timed: from a known time on. Open: some ends are unknown, so it is held from now on."""
    since: Time | None = None
    """When room was reserved for it first."""
    idle_held_seconds: Int64 = 0
    """For how long its room was idle and refused to others."""
    domain: Annotated[str, Field(max_length=1024)] | None = None
    """The domain of the network that the places are in, as a path from the top layer."""
    places: Annotated[list[ReservedPlace], Field(max_length=16)] | None = None
    """Where; of more than 16 nodes the first by name."""
    more_places: Annotated[str | None, Field(max_length=16384)] = None
    """The places on other nodes, in short: `gpu-[017-032]*1` is room for one member on each of 16
    nodes. Absent if that is too long."""
    places_total: Int32 = 0
    """On how many nodes."""


class QueueMove(Model):
    """A promised start that moved later."""

    from_: Annotated[Time | None, Field(alias="from")] = None
    """What was promised before."""
    to: Time | None = None
    """What is promised since; absent: nothing."""
    cause: Annotated[str, Field(max_length=32)] = ""
    """Why, as in docs/queue-eta.md."""
    by: Annotated[str, Field(max_length=512)] | None = None
    """The unit, job, node or quota behind it."""


class GroupQueue(Model):
    """Where the group stands in its queue; absent beyond the first hundred of a quota tree."""

    position: Int32 | None = None
    """Its place in the queue of its quota, from 1; absent while it is held."""
    ahead: Int32 = 0
    """How many units before it compete with it, of all queues."""
    head_since: Time | None = None
    """Since when it is the first that is refused, of its queue or of its user there."""
    expected_start: Time | None = None
    """When it is expected to start, rounded up."""
    start_no_later_than: Time | None = None
    """When it starts at the latest, rounded up."""
    certainty: Annotated[str, Field(max_length=16)] | None = None
    """Promised, Estimated, Guess or Unknown."""
    basis: dict[str, Int32] | None = None
    """How the ends are known that it waits for: Declared, Stated, History or Default, and of how
    many units."""
    reservation: QueueReservation | None = None
    """Room that is reserved for it."""
    last_move: QueueMove | None = None
    """The last time that a promised start moved later."""


class PodGroupStatus(Model):
    """What is known about the group."""

    phase: str | None = None
    """Pending, PreScheduling, Scheduling, Scheduled, Running, Finished or Failed."""
    occupied_by: str | None = None
    """Owners of the pods, as namespace/name joined by commas."""
    scheduled: Int32 | None = None
    """Members that have a node."""
    running: Int32 | None = None
    """Members in phase Running."""
    succeeded: Int32 | None = None
    """Members in phase Succeeded."""
    failed: Int32 | None = None
    """Members in phase Failed."""
    schedule_start_time: Time | None = None
    """When the group first entered phase Scheduling."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """QuorumReached, SpecValid, QuotaReserved, Placed, Bound, Degraded and Timeout; Queued while it
    waits for its turn; Preempting and Preempted where that happened."""
    members: GroupMembers | None = None
    """Numbers of members by state."""
    sub_groups: (
        Annotated[list[SubGroupMembers], Field(max_length=64), ListMap(("name",))] | None
    ) = None
    """Its sub-groups; of more than 64 only the first of those that lack members."""
    placement: GroupPlacement | None = None
    """Where the group was placed in the network topology."""
    plan_id: str | None = None
    """The plan that placed the members."""
    attempts: Int32 | None = None
    """Number of failed placement attempts; absent when the group is placed."""
    last_attempt_time: Time | None = None
    """When placement last failed, as of the last change of the reason."""
    queue_position: Int32 | None = None
    """Its position in the queue, from 1; some minutes old at most, absent when the group is placed
    or not complete."""
    gpus_ahead: Int64 | None = None
    """How many GPUs all that is planned before it asks for."""
    queue: GroupQueue | None = None
    """Where it stands in its queue, and when it is expected to start."""
    next_attempt_time: Time | None = None
    """When placement is tried again even if nothing changes; absent if never."""
    state: str | None = None
    """One word: Degraded, the reason why it waits, or its phase."""
    history: (
        Annotated[list[GroupEpisode], Field(max_length=32), ListMap(("time", "what"))] | None
    ) = None
    """What happened to the group: the last episodes, of each operator at most eight."""
    incarnation: str | None = None
    """Names the set of pods that were released together; a restarted job gets a new one."""
    runs: Annotated[list[GroupRun], Field(max_length=16)] | None = None
    """What is remembered of members, so that those that have succeeded count also when their pods
    are removed, as long as others of the same run live."""


class PodGroup(Resource):
    """A group of pods that are placed all together or not at all.

    Pods of its namespace join by the label pod-group.scheduling.sigs.k8s.io with its name.
    """

    rules = (
        Rule(
            f"self.metadata.name.size() <= {MAX_LABEL}",
            f"metadata.name must be at most {MAX_LABEL} characters: pods name it in a label",
        ),
    )
    names: ClassVar = Names(
        group=SIGS_GROUP,
        kind="PodGroup",
        plural="podgroups",
        short=("pg",),
        namespaced=True,
        max_name=MAX_LABEL,
        approval=SIGS_APPROVAL,
        columns=(
            PrinterColumn("State", ".status.state", description="Why it waits, or its phase."),
            PrinterColumn("Phase", ".status.phase", priority=1),
            PrinterColumn("Min", ".spec.minMember", "integer", "Members that must start together."),
            PrinterColumn("Members", ".status.members.present", "integer", "Pods that exist."),
            PrinterColumn("Bound", ".status.members.bound", "integer", "Pods that have a node."),
            PrinterColumn("Running", ".status.members.running", "integer", "Pods that run."),
            reason_column("Placed", priority=1),
            PrinterColumn("Domain", ".status.placement.domain", priority=1),
            PrinterColumn("Attempts", ".status.attempts", "integer", priority=1),
            AGE,
        ),
    )

    spec: PodGroupSpec
    """What the group needs to start."""
    status: PodGroupStatus = PodGroupStatus()
    """What is known about the group."""
