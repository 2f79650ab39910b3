"""DefragmentationPolicy: puts free GPUs together, so that the next large job fits.

Who may have neighbours moved is up to the administrator, who alone writes policies: it works for
shapes that are to fit at any time, and for waiting jobs of namespaces that it names. A policy that
says nothing else advises: it reports what it would move, and moves nothing.
"""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from koord.api.model import Marker, Model, Rule
from koord.api.quantity import parse_duration_seconds
from koord.api.resource import (
    AGE,
    Conditions,
    Duration,
    Int32,
    Int64,
    KeptSpec,
    Names,
    PrinterColumn,
    Resource,
    Time,
    reason_column,
)

DEFAULT_INTERVAL: Final = "5m"
DEFAULT_PER_HOUR: Final = 10
DEFAULT_PER_PLAN: Final = 16
SHAPE_PATTERN: Final = r"^([1-9][0-9]{0,2}x)?[1-9][0-9]{0,2}$"
_CLOCK: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
_ATOMIC_LIST: Final = Marker({"x-kubernetes-list-type": "atomic"})
Clock = Annotated[str, Field(max_length=5, pattern=_CLOCK)]
DayName = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


class DefragWindow(Model):
    """A part of the day in which pods may be moved, in UTC."""

    days: Annotated[list[DayName], Field(max_length=7), _ATOMIC_LIST] | None = None
    """Days on which it begins; all by default."""
    begin: Clock
    """When it begins, such as "22:00"."""
    end: Clock
    """When it ends; the next day if that is not later."""


class DefragWaiting(Model):
    """Waiting jobs for which pods may be moved."""

    namespaces: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=63)]],
            Field(max_length=256),
            _ATOMIC_LIST,
        ]
        | None
    ) = None
    """Those of these namespaces; of all by default."""
    min_priority: Int32 | None = None
    """Those with at least this priority; all by default."""
    after: Duration | None = None
    """How long they must have waited; 0 by default."""


class DefragmentationPolicySpec(Model):
    """What pods are moved for, when, and how many."""

    mode: Literal["Advise", "Migrate"] | None = None
    """Advise, the default, only reports moves; Migrate has them carried out."""
    paused: bool | None = None
    """Whether nothing is searched and moved."""
    interval: (
        Annotated[
            Duration,
            Rule(
                "duration(self) >= duration('10s')",
                "must be at least 10s",
                lambda text: (parse_duration_seconds(text) or 0) >= 10,
            ),
        ]
        | None
    ) = None
    """How often it is searched; 5m by default."""
    shapes: (
        Annotated[
            list[Annotated[str, Field(max_length=7, pattern=SHAPE_PATTERN)]],
            Field(max_length=16),
            _ATOMIC_LIST,
        ]
        | None
    ) = None
    """Shapes of which one is to fit at any time: "8" is a pod of 8 GPUs, "4x8" four of them."""
    waiting: DefragWaiting | None = None
    """Waiting jobs for which pods are moved; none by default."""
    max_moves_per_hour: Annotated[Int32, Field(ge=0, le=10_000)] | None = None
    """How many pods are moved within an hour at most; 10 by default."""
    max_moves_per_plan: Annotated[Int32, Field(ge=1, le=64)] | None = None
    """How many pods are moved for one job or shape at most; 16 by default."""
    windows: Annotated[list[DefragWindow], Field(max_length=32), _ATOMIC_LIST] | None = None
    """When pods may be moved; at any time by default."""


class DefragShape(Model):
    """How often a shape fits."""

    shape: str
    """The shape."""
    fitting: Int64 = 0
    """How many fit by themselves on what is free now."""
    possible: Int64 = 0
    """How many would if all free GPUs were together: at most."""


class DefragMove(Model):
    """A pod that would be moved, or is."""

    pod: str
    """Namespace and name of the pod."""
    node: str
    """The node that it leaves."""
    target: str
    """The node of its new place."""
    step: Int32 = 0
    """Moves of one step are made together, after those of the steps before."""


class DefragPlan(Model):
    """What would have to move for a job or shape."""

    purpose: Annotated[str, Field(alias="for")]
    """The job or shape."""
    moves: list[DefragMove] | None = None
    """The moves, in order; none if no moves help."""
    is_proven: Annotated[bool, Field(alias="proven")] = False
    """Whether no other moves are fewer or cheaper."""
    message: str | None = None
    """Why there are no moves."""


class DefragmentationPolicyStatus(Model):
    """What the last round found and did."""

    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """Conditions of the policy: Accepted, Ready."""
    last_round_time: Time | None = None
    """When it was searched last."""
    shapes: list[DefragShape] | None = None
    """How often each shape fits."""
    plans: list[DefragPlan] | None = None
    """What would have to move for what does not fit."""
    moves: Int64 | None = None
    """How many moves were ordered in all."""
    recent_moves: list[Int64] | None = None
    """When those of the last hour were ordered, in seconds since the epoch."""
    last_valid_spec: KeptSpec | None = None
    """The settings in force: those of the spec while valid, else the last valid ones."""


class DefragmentationPolicy(Resource):
    """Moves pods so that large jobs fit."""

    names: ClassVar = Names(
        group="operators.koordinator.sh",
        kind="DefragmentationPolicy",
        plural="defragmentationpolicies",
        short=("dfp",),
        namespaced=False,
        columns=(
            PrinterColumn("Mode", ".spec.mode"),
            PrinterColumn("Moves", ".status.moves", "integer", "Moves that were ordered."),
            reason_column("Ready"),
            reason_column("Accepted", priority=1),
            AGE,
        ),
    )

    spec: DefragmentationPolicySpec
    """What pods are moved for, when, and how many."""
    status: DefragmentationPolicyStatus = DefragmentationPolicyStatus()
    """What the last round found and did."""
